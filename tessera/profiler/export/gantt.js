// Draws the bars of the visible window when the timeline is zoomed: a browser cannot hold all of a large recording.
// `bars` holds columns, one entry per tile record, in ns from the first tile's start; see `Bars` in gantt.py.
'use strict';

function tesseraTimeline(plot, bars) {
  const { most, scale, span } = bars;
  const total = bars.start.length;

  function within(from, to) {
    let found = [];
    for (let i = 0; i < total; i++) {
      if (bars.start[i] < to && bars.start[i] + bars.duration[i] > from) found.push(i);
    }
    if (found.length > most) {
      found.sort((a, b) => bars.duration[b] - bars.duration[a]);
      found = found.slice(0, most);
    }
    return found;
  }

  function hover(i) {
    const line = bars.line[i] ? `<br>line ${bars.line[i]}` : '';
    return (
      `tile ${bars.tile[i]}: ${bars.groups[bars.group[i]]}<br>${bars.launches[bars.launch[i]]}` +
      `<br>${bars.rows[bars.row[i]]}<br>${bars.duration[i].toLocaleString('en')} ns${line}`
    );
  }

  function draw(from, to) {
    const shown = within(from, to);
    const groups = bars.groups.map(() => ({ base: [], x: [], y: [], text: [] }));
    for (const i of shown) {
      const group = groups[bars.group[i]];
      group.base.push(bars.start[i] / scale);
      group.x.push(bars.duration[i] / scale);
      group.y.push(bars.row[i]);
      group.text.push(hover(i));
    }
    const traces = groups.map((_, index) => index + 1); // trace 0 is the overview
    const columns = (name) => groups.map((group) => group[name]);
    const caption =
      shown.length === total
        ? `all ${total.toLocaleString('en')} tile records`
        : `${shown.length.toLocaleString('en')} of ${total.toLocaleString('en')} tile records`;
    Plotly.update(
      plot,
      { base: columns('base'), x: columns('x'), y: columns('y'), text: columns('text') },
      {
        'shapes[0].x0': from / scale,
        'shapes[0].x1': to / scale,
        'annotations[0].text': caption,
        'xaxis2.range': [from / scale, to / scale],
      },
      traces,
    );
  }

  let drawn = '';
  plot.on('plotly_relayout', (change) => {
    let range = change['xaxis2.range'];
    if (change['xaxis2.range[0]'] !== undefined) range = [change['xaxis2.range[0]'], change['xaxis2.range[1]']];
    if (change['xaxis2.autorange']) range = [0, span / scale];
    if (!range || drawn === String(range)) return; // our own update comes back as an event
    drawn = String(range);
    draw(range[0] * scale, range[1] * scale);
  });
  plot.on('plotly_click', ({ points }) => {
    if (points[0].curveNumber !== 0) return;
    const [from, to] = plot.layout.xaxis2.range;
    const half = (to - from) / 2;
    Plotly.relayout(plot, { 'xaxis2.range': [points[0].x - half, points[0].x + half] });
  });
}

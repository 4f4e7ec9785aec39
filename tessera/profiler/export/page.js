// Draws the figures of a profile page from the data that stands in it.
(() => {
  const data = (name) => JSON.parse(document.getElementById(`data-${name}`).textContent);
  const config = { responsive: true, displaylogo: false };
  for (const [name, figure] of Object.entries(data('figures'))) {
    const plot = document.getElementById(name);
    Plotly.newPlot(plot, figure.data, figure.layout, config).then(() => {
      const bars = data('bars');
      if (name === 'timeline' && bars) tesseraTimeline(plot, bars);
    });
  }
})();

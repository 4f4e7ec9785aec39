// Makes the pictures of tiles over time such that they can be zoomed, and their tiles chosen. See tiles.py.
(() => {
  const LISTED = 8, TOP = 34, AXIS = 22, PALE = 0.22;
  const make = (tag, attributes, ...inside) => {
    const node = document.createElement(tag);
    for (const name in attributes) node.setAttribute(name, attributes[name]);
    node.append(...inside);
    return node;
  };

  async function unpack(packed, columns, count) {
    const raw = Uint8Array.from(atob(packed), c => c.charCodeAt(0));
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    return Array.from({ length: columns }, (_, c) => {
      const at = 4 * c * count, out = new Int32Array(count);
      let last = 0;
      for (let i = 0; i < count; i++) {
        const k = at + i;
        last = (last + (bytes[k] | bytes[k + count] << 8 | bytes[k + 2 * count] << 16 | bytes[k + 3 * count] << 24)) | 0;
        out[i] = last;
      }
      return out;
    });
  }

  const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  function time(ns) {
    const [size, unit] = UNITS.find(([size]) => Math.abs(ns) >= size) || UNITS[3];
    return `${Number((ns / size).toPrecision(3))} ${unit}`;
  }

  // A tile's coordinates in the grid, whose last axis is the fastest.
  function coordinates(index, grid) {
    const found = [];
    for (const extent of [...grid].reverse()) {
      found.unshift(index % Math.max(1, extent));
      index = Math.floor(index / Math.max(1, extent));
    }
    return found.length ? found : [index];
  }

  // What a tile read of each operand: see parts.py.
  const OPERATORS = { min: Math.min, max: Math.max, "//": (a, b) => Math.floor(a / b), "%": (a, b) => a - Math.floor(a / b) * b };
  function value(tree, place) {
    if (typeof tree === "number") return tree;
    const [kind, ...rest] = tree;
    if (kind === "p") return place[rest[0]];
    if (kind !== "+") return OPERATORS[kind](...rest.map(part => value(part, place)));
    return rest.reduce((sum, [factor, ...atoms]) => sum + atoms.reduce((x, atom) => x * value(atom, place), factor), 0);
  }
  function read(operands, place, unknown) {
    const axis = part => {
      if (!part) return "?";
      const [from, to, extent] = part.map(tree => value(tree, place)), low = Math.max(from, 0), high = Math.min(to, extent);
      return high === low + 1 ? String(low) : `${low}:${Math.max(low, high)}`;
    };
    const said = operands.map(([operand, axes]) => `${operand}[${axes.map(axis).join(", ")}]`).join(", ");
    return operands.some(([, axes]) => axes.includes(null)) ? `${said} (${unknown})` : said;
  }

  // Where the largest of `value` stands, over any range, from maxima over runs of 2, 4, 8 ...
  function maxima(value) {
    const levels = [];
    let below = Int32Array.from(value, (_, i) => i);
    while (below.length > 1) {
      const next = new Int32Array(below.length + 1 >> 1);
      for (let i = 0; i < next.length; i++) {
        const a = below[2 * i], b = below[2 * i + 1];
        next[i] = b === undefined || value[a] >= value[b] ? a : b;
      }
      levels.push(below);
      below = next;
    }
    levels.push(below);
    return (from, to) => {
      let best = from;
      for (let level = 0; from < to; level++, from >>= 1, to >>= 1) {
        if (from & 1) { const i = levels[level][from++]; if (value[i] > value[best]) best = i; }
        if (to & 1) { const i = levels[level][--to]; if (value[i] > value[best]) best = i; }
      }
      return best;
    };
  }

  class View {
    constructor(root, told, columns) {
      Object.assign(this, told, { root });
      const [start, length, busy, offset, took, tile, line, kind] = columns, n = told.blocks;
      Object.assign(this, { tile, line, kind, took });
      this.start = Float64Array.from(start, v => v * told.tick);
      this.slowStart = Float64Array.from(offset, (v, i) => (start[i] + v) * told.tick);
      this.reach = new Float64Array(n);  // the latest end of a row so far
      this.excess = new Float64Array(n);
      this.busyBefore = new Float64Array(n + 1);
      for (let row = 0; row < told.rows.length; row++) {
        let last = 0;
        for (let i = told.first[row]; i < told.first[row + 1]; i++) {
          this.reach[i] = last = Math.max(last, this.start[i] + length[i] * told.tick);
        }
      }
      for (let i = 0; i < n; i++) {
        this.excess[i] = took[i] * told.grain - told.kernels[told.kinds[kind[i]][2]].median;
        this.busyBefore[i + 1] = this.busyBefore[i] + busy[i] * told.grain;
      }
      this.longest = maxima(this.excess);
      this.chosen = null;
      this.range = null;
      this.only = new Set();
      this.window = [0, told.span];
      this.marked = -1;
      this.build();
    }

    build() {
      const button = (text, title, act) => {
        const node = make("button", { type: "button", title }, text);
        node.addEventListener("click", act);
        return node;
      };
      this.bar = make("div", { class: "ts-choice" },
        button("−", "show more time (-)", () => this.zoom(2)), button("+", "show less time (+)", () => this.zoom(0.5)),
        button("◀", "earlier (left arrow)", () => this.pan(-0.5)), button("▶", "later (right arrow)", () => this.pan(0.5)),
        button("All", "the whole run (Home)", () => this.show(0, this.span)));
      this.kernels.slice(0, 12).forEach((kernel, i) => {
        const swatch = make("i", { class: "ts-swatch", style: `background:${kernel.colour}` });
        const chip = button("", "only this kernel's tiles, or all again", () => {
          this.only.has(i) ? this.only.delete(i) : this.only.add(i);
          chip.setAttribute("aria-pressed", this.only.has(i));
          this.choose();
        });
        chip.append(swatch, kernel.name);
        chip.setAttribute("aria-pressed", false);
        chip.classList.add("ts-chip");
        this.bar.append(chip);
      });
      this.least = make("input", { type: "number", min: 0, step: "any", class: "ts-least", "aria-label": "least multiple of the kernel's median" });
      this.least.addEventListener("input", () => this.choose());
      this.least.addEventListener("keydown", event => event.stopPropagation());
      this.bar.append(make("label", {}, "slower than ", this.least, " × its median"));
      const clear = button("Clear", "choose all tiles again (Escape)", () => this.clear());
      this.bar.append(clear);
      this.canvas = make("canvas", { tabindex: 0, role: "img", class: "ts-canvas" });
      this.said = make("div", { class: "ts-said", "aria-live": "polite" });
      const drawn = this.root.querySelector(".ts-drawn");
      this.caption = make("figcaption", {});
      drawn.replaceChildren(make("figure", { class: "ts-chart" }, this.caption, this.bar, this.canvas, this.said));
      this.table = this.root.querySelector(".ts-slow tbody");
      this.heads = [...this.root.querySelectorAll(".ts-slow thead th")].slice(1).map(head => head.textContent);
      this.pointer();
      this.keys();
      this.histogram();
      new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
      new MutationObserver(() => this.draw()).observe(document.body, { attributes: true });
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
      this.show(0, this.span);
    }

    // The window

    show(from, to) {
      const least = Math.min(this.span, 50);
      let length = Math.min(Math.max(to - from, least), this.span);
      from = Math.min(Math.max(0, from), this.span - length);
      this.window = [from, from + length];
      this.draw();
      this.list();
    }
    zoom(by, at = (this.window[0] + this.window[1]) / 2) {
      const [from, to] = this.window;
      this.show(at - (at - from) * by, at + (to - at) * by);
    }
    pan(part) {
      const [from, to] = this.window, step = (to - from) * part;
      this.show(from + step, to + step);
    }

    // What is chosen

    clear() {
      this.range = null;
      this.only.clear();
      this.least.value = "";
      this.bar.querySelectorAll("[aria-pressed]").forEach(chip => chip.setAttribute("aria-pressed", false));
      this.choose();
    }
    choose() {
      const times = Number(this.least.value) || 0, { range, only } = this;
      this.chosen = null;
      if (times || range || only.size) {
        const value = this.excess.map((excess, i) => {
          const took = this.took[i] * this.grain, kernel = this.kinds[this.kind[i]][2];
          const mine = (!only.size || only.has(kernel)) && (!range || (took >= range[0] && took < range[1])) &&
            took > times * this.kernels[kernel].median;
          return mine ? excess : -Infinity;
        });
        this.chosen = { value, longest: maxima(value) };
      }
      for (const show of this.brushes || []) show(range);
      this.draw();
      this.list();
    }
    isChosen(i) { return !this.chosen || this.chosen.value[i] > -Infinity; }

    // Entries of a row that reach into [from, to)
    entries(row, from, to) {
      return [bound(this.reach, from, this.first[row], this.first[row + 1], true), bound(this.start, to, this.first[row], this.first[row + 1], false)];
    }

    // Drawing

    layout() {
      const width = Math.max(240, this.canvas.parentElement.clientWidth);
      const rows = this.rows.length;
      const left = width < 520 ? 46 : Math.min(150, 16 + 7 * Math.max(...this.rows.slice(0, 64).map(r => r.length)));
      const height = Math.max(1, Math.min(24, Math.floor(420 / rows)));
      return { width, left, right: width - 8, row: height, bottom: TOP + rows * height };
    }

    draw() {
      if (!this.canvas.parentElement.clientWidth) return;  // in a tab that is not shown
      const at = this.at = this.layout(), dense = devicePixelRatio || 1, canvas = this.canvas;
      canvas.style.width = `${at.width}px`;
      canvas.style.height = `${at.bottom + AXIS + 14}px`;
      canvas.width = Math.round(at.width * dense);
      canvas.height = Math.round((at.bottom + AXIS + 14) * dense);
      const c = canvas.getContext("2d"), [from, to] = this.window, span = to - from;
      c.scale(dense, dense);
      c.font = "11px system-ui, sans-serif";
      const ink = getComputedStyle(canvas).color, scale = (at.right - at.left) / span;
      const x = t => at.left + (t - from) * scale;
      this.names(c, ink);
      let most = -1;
      const pick = this.chosen || { value: this.excess, longest: this.longest };
      for (let row = 0; row < this.rows.length; row++) {
        const [a, b] = this.entries(row, from, to);
        if (a >= b) continue;
        const i = pick.longest(a, b);
        if (most < 0 || pick.value[i] > pick.value[most]) most = i;
      }
      const worst = most < 0 ? 1 : Math.max(pick.value[most], this.kernels[this.kinds[this.kind[most]][2]].median, 1);
      const tall = i => this.isChosen(i) ? 0.45 + 0.55 * Math.sqrt(Math.max(0, this.excess[i]) / worst) : 0.45;
      if (at.row < 7) this.cells(c, scale, tall, pick);
      else for (let row = 0; row < this.rows.length; row++) {
        const [a, b] = this.entries(row, from, to), y = TOP + row * at.row;
        const paint = (i, left, width, h, alpha) => {
          c.globalAlpha = this.isChosen(i) ? alpha : PALE;
          c.fillStyle = this.kernels[this.kinds[this.kind[i]][2]].colour;
          c.fillRect(left, y + at.row - h, width, h);
        };
        const high = i => Math.max(1, Math.round((at.row - 3) * tall(i)));
        if (b - a <= (at.right - at.left) / 3) for (let i = a; i < b; i++) {
          const l = Math.max(at.left, x(this.start[i])), r = Math.min(at.right, x(this.reach[i]));
          paint(i, l, Math.max(r - l - (r - l > 3 ? 0.5 : 0), 0.75), high(i), 1);
          if (r - l > 60 && at.row >= 12) this.inside(c, i, l, r, y, at.row);
        } else {
          let held = -1, since = 0, h = 0, shade = 0;
          this.columns(a, b, 1, scale, pick, (best, px, alpha) => {
            const same = best >= 0 && held >= 0 && high(best) === h && alpha === shade &&
              this.kinds[this.kind[best]][2] === this.kinds[this.kind[held]][2] && this.isChosen(best) === this.isChosen(held);
            if (same) return;
            if (held >= 0) paint(held, since, px - since, h, shade);
            held = best; since = px; shade = alpha; h = best < 0 ? 0 : high(best);
          });
        }
      }
      c.globalAlpha = 1;
      this.axis(c, ink, x);
      if (most >= 0 && pick.value[most] > -Infinity) this.point(c, ink, x, this.marked >= 0 ? this.marked : most);
      this.tell(most);
    }

    // Calls `see` with the slowest tile of each pixel of a row, paler the less of the pixel's time a tile ran; -1: none.
    columns(a, b, step, scale, pick, see) {
      const { left, right } = this.at, from = this.window[0];
      let i = a;
      for (let px = left; px < right; px += step) {
        const t0 = from + (px - left) / scale, t1 = t0 + step / scale;
        const before = i > a && this.reach[i - 1] > t0 ? i - 1 : i;
        let ahead = 1;
        while (i + ahead < b && this.start[i + ahead] < t1) ahead *= 2;
        const end = bound(this.start, t1, i, Math.min(b, i + ahead), false);
        if (before >= end) { see(-1, px, 0); continue; }
        let best = pick.longest(before, end);
        if (this.chosen && !this.isChosen(best)) best = this.longest(before, end);
        const busy = (this.busyBefore[end] - this.busyBefore[before]) * scale / step;
        see(best, px, 0.3 + 0.7 * Math.min(1, Math.round(busy * 4) / 4));
        i = end;
      }
      see(-1, right, 0);
    }

    // Many lanes: a pixel for each, darker the slower its slowest tile.
    cells(c, scale, tall, pick) {
      const { left, right, row } = this.at, [from, to] = this.window, width = Math.ceil((right - left) / 2);
      const picture = new ImageData(width, this.rows.length), colours = this.kernels.map(k => parseInt(k.colour.slice(1), 16));
      for (let lane = 0; lane < this.rows.length; lane++) {
        const [a, b] = this.entries(lane, from, to);
        if (a < b) this.columns(a, b, 2, scale, pick, (best, px, alpha) => {
          if (best < 0) return;
          const at = 4 * (lane * width + Math.round((px - left) / 2)), colour = colours[this.kinds[this.kind[best]][2]];
          picture.data[at] = colour >> 16;
          picture.data[at + 1] = colour >> 8 & 255;
          picture.data[at + 2] = colour & 255;
          picture.data[at + 3] = 255 * (this.isChosen(best) ? alpha * tall(best) : PALE);
        });
      }
      const sheet = make("canvas", { width, height: this.rows.length });
      sheet.getContext("2d").putImageData(picture, 0, 0);
      c.imageSmoothingEnabled = false;
      c.drawImage(sheet, left, TOP, 2 * width, this.rows.length * row);
    }

    // A wide bar has its kernel's name in it.
    inside(c, i, l, r, y, row) {
      c.save();
      c.beginPath();
      c.rect(l, y, r - l - 2, row);
      c.clip();
      c.globalAlpha = this.isChosen(i) ? 1 : PALE;
      c.fillStyle = "#000";
      c.fillText(this.kernels[this.kinds[this.kind[i]][2]].name, l + 3, y + row - 3);
      c.restore();
    }

    names(c, ink) {
      const { left, row } = this.at, every = Math.max(1, Math.ceil(13 / row));
      c.fillStyle = ink;
      c.textAlign = "right";
      this.rows.forEach((name, i) => {
        if (i % every) return;
        let said = left < 60 ? name.replace(/[^\d·.]+/g, " ").trim() || name : name;
        while (said.length > 3 && c.measureText(said).width > left - 8) said = said.slice(0, -2) + "…";
        c.fillText(said, left - 6, TOP + i * row + row / 2 + 4);
      });
      c.textAlign = "left";
    }

    axis(c, ink, x) {
      const { left, right, bottom } = this.at, [from, to] = this.window;
      const [size, unit] = UNITS.find(([size]) => to >= 2 * size) || UNITS[3];
      const rough = (to - from) / Math.max(2, (right - left) / 110), power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough * 0.999);
      const digits = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
      c.fillStyle = c.strokeStyle = ink;
      c.globalAlpha = 0.35;
      c.beginPath();
      c.moveTo(left, bottom + 0.5);
      c.lineTo(right, bottom + 0.5);
      c.stroke();
      c.globalAlpha = 1;
      c.textAlign = "center";
      for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
        c.fillRect(x(t), bottom, 1, 4);
        c.fillText((t / size).toFixed(digits), Math.min(Math.max(x(t), left), right - 8), bottom + 16);
      }
      c.textAlign = "right";
      c.fillText(`time (${unit})`, right, bottom + 30);
      c.textAlign = "left";
    }

    // The name of a tile above it, and a mark that needs no colour.
    point(c, ink, x, i) {
      const { left, right } = this.at, row = this.rowOf(i);
      const middle = x(this.slowStart[i] + this.took[i] * this.grain / 2), tip = Math.min(Math.max(middle, left), right);
      c.fillStyle = c.strokeStyle = ink;
      c.beginPath();
      c.moveTo(tip - 5, TOP - 11);
      c.lineTo(tip + 5, TOP - 11);
      c.lineTo(tip, TOP - 2);
      c.fill();
      c.globalAlpha = 0.6;
      c.setLineDash([2, 2]);
      c.beginPath();
      c.moveTo(tip, TOP - 2);
      c.lineTo(tip, TOP + row * this.at.row + 2);
      c.stroke();
      c.setLineDash([]);
      c.globalAlpha = 1;
      const said = `${this.name(i)}: ${time(this.took[i] * this.grain)}${this.times(i)}`;
      const width = c.measureText(said).width;
      const beside = tip + 9 + width < right ? tip + 9 : tip - 9 - width;
      c.fillText(said, Math.max(0, beside), beside < 0 ? TOP - 16 : TOP - 6);
    }

    // Words

    rowOf(i) { return bound(this.first, i, 0, this.first.length, false, true) - 1; }
    place(i) { return coordinates(this.tile[i], this.kinds[this.kind[i]][1]); }
    name(i) {
      const place = this.place(i);
      return `tile ${place.length > 1 ? `(${place.join(", ")})` : place[0]}`;
    }
    read(i) { return read(this.kinds[this.kind[i]][3], this.place(i), this.unknown); }
    times(i) {
      const { median } = this.kernels[this.kinds[this.kind[i]][2]];
      return median ? `, ${Number((this.took[i] * this.grain / median).toPrecision(3))} × the median` : "";
    }
    tell(most) {
      const [from, to] = this.window, n = this.total.toLocaleString("en");
      const part = to - from < this.span ? `${time(from)} to ${time(to)} of ${time(this.span)}` : `in ${time(this.span)}`;
      const joined = this.size > 1 ? `; up to ${this.size} share a block, with the slowest of them` : "";
      this.caption.textContent = `Tiles over time: ${n} on ${this.rows.length} lane${this.rows.length > 1 ? "s" : ""} ${part}${joined}${this.missing && `; ${this.missing}`}`;
      const slow = most < 0 ? "" : `. Slowest: ${this.name(most)} of ${this.kernels[this.kinds[this.kind[most]][2]].name}, ${time(this.took[most] * this.grain)}${this.times(most)}`;
      this.canvas.setAttribute("aria-label", this.caption.textContent + slow);
    }
    describe(i) {
      const [title] = this.kinds[this.kind[i]], line = this.line[i] ? `, line ${this.line[i]}` : "";
      const phases = this.phases[i] ? ` (${this.phases[i]})` : "", read = this.read(i) && `; it read ${this.read(i)}`;
      return `${this.name(i)} of ${title}: ${time(this.took[i] * this.grain)}${this.times(i)}${phases}, from ${time(this.slowStart[i])} on ${this.rows[this.rowOf(i)]}${line}${read}`;
    }

    // The slowest tiles of the window, of those that are chosen.
    list() {
      const [from, to] = this.window, found = [];
      const pick = this.chosen ? this.chosen.value : this.excess;
      let count = 0;
      for (let row = 0; row < this.rows.length; row++) {
        const [a, b] = this.entries(row, from, to);
        for (let i = a; i < b; i++) {
          if (pick[i] === -Infinity) continue;
          count++;
          if (found.length === LISTED && pick[i] <= pick[found[LISTED - 1]]) continue;
          let at = found.length;
          while (at > 0 && pick[found[at - 1]] < pick[i]) at--;
          found.splice(at, 0, i);
          if (found.length > LISTED) found.pop();
        }
      }
      const what = this.size > 1 ? "blocks" : "tiles";
      this.said.textContent = this.chosen ? `${count.toLocaleString("en")} ${what} chosen in this window` : "";
      this.table.replaceChildren(...found.map(i => {
        const [title, , kernel] = this.kinds[this.kind[i]];
        const go = make("button", { type: "button", title: "show it" }, this.name(i));
        go.addEventListener("click", () => this.visit(i));
        const { median } = this.kernels[kernel], took = this.took[i] * this.grain;
        const row = make("tr", this.phases[i] ? { title: this.phases[i] } : {}, make("th", {}, go));
        const times = median ? `${Number((took / median).toPrecision(3))} ×` : "-";
        const cells = [title, time(took), times, time(this.slowStart[i]), this.rows[this.rowOf(i)], this.line[i] || "-", this.read(i) || "-"];
        cells.forEach((cell, n) => row.append(make("td", { "data-h": this.heads[n] }, String(cell))));
        const light = on => this.light(on ? i : -1);
        row.addEventListener("pointerenter", () => light(true));
        row.addEventListener("pointerleave", () => light(false));
        go.addEventListener("focus", () => light(true));
        go.addEventListener("blur", () => light(false));
        return row;
      }));
    }

    // Marks a tile here, and its line wherever the panel shows the source.
    light(i) {
      this.marked = i;
      this.draw();
      const panel = this.root.closest(".tessera-panel");
      panel?.querySelectorAll(".ts-of-tile").forEach(line => line.classList.remove("ts-of-tile"));
      if (i < 0 || !this.line[i]) return;
      panel?.querySelectorAll(".ts-l").forEach(line => {
        if (line.dataset.l.split(" ").includes(String(this.line[i]))) line.classList.add("ts-of-tile");
      });
    }
    visit(i) {
      const around = Math.max(this.took[i] * this.grain * 6, 200), middle = this.slowStart[i] + this.took[i] * this.grain / 2;
      this.show(middle - around / 2, middle + around / 2);
    }

    // A pointer names what it is on; a drag chooses a window; with Ctrl the wheel zooms.
    pointer() {
      const canvas = this.canvas, when = event => {
        const { left, right } = this.at, part = (event.offsetX - left) / (right - left);
        return this.window[0] + Math.min(1, Math.max(0, part)) * (this.window[1] - this.window[0]);
      };
      let from = null;
      canvas.addEventListener("pointerdown", event => { from = when(event); canvas.setPointerCapture(event.pointerId); });
      canvas.addEventListener("pointermove", event => {
        const to = when(event);
        if (from !== null) {
          this.draw();
          const { left, right, bottom } = this.at, scale = (right - left) / (this.window[1] - this.window[0]);
          const c = canvas.getContext("2d");
          c.fillStyle = getComputedStyle(canvas).color;
          c.globalAlpha = 0.15;
          c.fillRect(left + (Math.min(from, to) - this.window[0]) * scale, TOP, Math.abs(to - from) * scale, bottom - TOP);
          c.globalAlpha = 1;
          return;
        }
        const row = Math.floor((event.offsetY - TOP) / this.at.row);
        const near = 2 * (this.window[1] - this.window[0]) / (this.at.right - this.at.left);
        const [a, b] = row >= 0 && row < this.rows.length ? this.entries(row, to - near, to + near) : [0, 0];
        this.said.textContent = a < b ? this.describe((this.chosen || this).longest(a, b)) : "";
      });
      canvas.addEventListener("pointerup", event => {
        const to = when(event), moved = from !== null && Math.abs(to - from) > (this.window[1] - this.window[0]) / 200;
        const begin = from;
        from = null;
        if (moved) this.show(Math.min(begin, to), Math.max(begin, to));
        else this.draw();
      });
      canvas.addEventListener("dblclick", () => this.show(0, this.span));
      canvas.addEventListener("wheel", event => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.4 : 1 / 1.4, when(event));
      }, { passive: false });
    }

    keys() {
      const act = {
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), ArrowLeft: () => this.pan(-0.25),
        ArrowRight: () => this.pan(0.25), Home: () => this.show(0, this.span), Escape: () => this.clear(),
      };
      this.canvas.addEventListener("keydown", event => {
        if (!act[event.key] || event.ctrlKey || event.metaKey) return;
        event.preventDefault();
        event.stopPropagation();  // the notebook has keys of its own
        act[event.key]();
      });
    }

    // A drag over the histogram chooses the tiles that took so long.
    histogram() {
      const n = this.edges.length - 1;
      this.brushes = [...this.root.querySelectorAll(".ts-histogram svg")].map(svg => {
        const width = svg.viewBox.baseVal.width, left = Number(svg.dataset.left), right = width - 14;
        const mark = document.createElementNS(svg.namespaceURI, "rect");
        for (const [name, value] of Object.entries({ class: "ts-brush", y: 8, height: 110, width: 0, x: 0 })) mark.setAttribute(name, value);
        svg.append(mark);
        const bin = event => {
          const frame = svg.getBoundingClientRect(), x = (event.clientX - frame.left) / frame.width * width;
          return Math.min(n - 1, Math.max(0, Math.floor((x - left) / (right - left) * n)));
        };
        let from = null;
        svg.classList.add("ts-brushed");
        svg.addEventListener("pointerdown", event => { from = bin(event); svg.setPointerCapture(event.pointerId); event.preventDefault(); });
        svg.addEventListener("pointerup", event => {
          if (from === null) return;
          const to = bin(event);
          this.range = [this.edges[Math.min(from, to)], this.edges[Math.max(from, to) + 1]];
          from = null;
          this.choose();
        });
        const across = took => {
          const i = Math.max(0, bound(this.edges, took, 0, n + 1, false, true) - 1);
          return left + (right - left) * Math.min(n, this.edges[i] === took ? i : i + 1) / n;
        };
        return range => {
          mark.setAttribute("width", range ? Math.max(2, across(range[1]) - across(range[0])) : 0);
          if (range) mark.setAttribute("x", across(range[0]));
        };
      });
    }
  }

  // The first index of [from, to) whose value is at least `at` (`over`: or above it).
  function bound(values, at, from, to, over, orEqual = false) {
    while (from < to) {
      const middle = from + to >> 1;
      if (over || orEqual ? values[middle] <= at : values[middle] < at) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  for (const root of document.querySelectorAll(".ts-over-time:not(.ts-live)")) {
    root.classList.add("ts-live");
    const told = JSON.parse(root.dataset.tiles);
    unpack(told.packed, 8, told.blocks).then(columns => { root.tesseraTiles = new View(root, told, columns); });
  }
})();

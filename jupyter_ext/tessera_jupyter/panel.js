// Turns the static panels of a page into tabs, and links the lines of a source with those of its IR. A page without
// scripts keeps the sections that these are made from.
(() => {
  const all = (root, selector) => [...root.querySelectorAll(selector)];
  const make = (tag, attributes, text) => {
    const node = document.createElement(tag);
    for (const name in attributes) node.setAttribute(name, attributes[name]);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  let count = 0;

  // Arrow keys, Home and End walk through `nodes`, one of which is in the tab order.
  function walkable(nodes, keys, go) {
    nodes.forEach((node, i) => {
      node.tabIndex = i ? -1 : 0;
      node.addEventListener("keydown", event => {
        const next = { [keys[0]]: i - 1, [keys[1]]: i + 1, Home: 0, End: nodes.length - 1 }[event.key];
        if (next === undefined || !nodes[next]) return;
        event.preventDefault();
        event.stopPropagation();  // the notebook has keys of its own
        nodes.forEach(n => n.tabIndex = n === nodes[next] ? 0 : -1);
        nodes[next].focus({ preventScroll: true });
        go(nodes[next]);
      });
    });
  }

  function tabs(panel) {
    const sections = all(panel, ":scope > .ts-tab");
    const bar = make("div", { class: "ts-bar", role: "tablist", "aria-label": "Tessera" });
    const buttons = sections.map(section => {
      const id = `ts-${Date.now().toString(36)}-${count++}`;
      section.id = id;
      section.setAttribute("role", "tabpanel");
      return make("button", { role: "tab", "aria-controls": id, type: "button" }, section.querySelector("summary").textContent);
    });
    const choose = button => {
      // A page whose end moved up would jump; more than a screen would be empty space.
      if (panel.offsetHeight) panel.style.minHeight = `${Math.min(panel.offsetHeight, innerHeight / 2)}px`;
      buttons.forEach((b, i) => {
        b.setAttribute("aria-selected", b === button);
        b.tabIndex = b === button ? 0 : -1;
        sections[i].hidden = b !== button;
        sections[i].open = true;
      });
    };
    buttons.forEach(b => b.addEventListener("click", () => choose(b)));
    bar.append(...buttons);
    panel.prepend(bar);
    walkable(buttons, ["ArrowLeft", "ArrowRight"], choose);
    choose(buttons[sections.findIndex(s => s.hasAttribute("data-first"))] || buttons[0]);
    panel.style.minHeight = "";  // all sections stood there until now
  }

  // One function or kernel at a time, where there are several.
  function subjects(tab) {
    const found = all(tab, ":scope > .ts-subject");
    if (found.length < 2) return found.forEach(s => s.classList.add("ts-alone"));
    const select = make("select", { "aria-label": "function or kernel" });
    found.forEach(s => { select.append(make("option", {}, s.dataset.name)); s.classList.add("ts-alone"); });
    const choose = () => found.forEach((s, i) => s.hidden = i !== select.selectedIndex);
    select.addEventListener("change", choose);
    const row = make("div", { class: "ts-choice" });
    row.append(select);
    found[0].before(row);
    choose();
  }

  // Buttons that show and hide the levels beside the source.
  function levels(linked) {
    const found = all(linked, ".ts-level");
    const row = make("div", { class: "ts-choice", role: "group", "aria-label": "levels of the IR" });
    const first = found.find(level => level.querySelector("pre"));
    for (const level of found) {
      const button = make("button", { type: "button", "aria-pressed": level === first }, level.querySelector("summary").textContent);
      level.open = true;
      level.hidden = level !== first;
      level.querySelector("summary").addEventListener("click", event => event.preventDefault());
      button.addEventListener("click", () => {
        level.hidden = !level.hidden;
        button.setAttribute("aria-pressed", !level.hidden);
      });
      row.append(button);
    }
    linked.querySelector(".ts-columns").before(row);
  }

  // Pointing at a line, or focusing it, lights up what belongs to it everywhere; a click or Enter keeps it lit.
  function link(linked) {
    const byLine = new Map();
    const lines = all(linked, ".ts-l");
    const numbers = line => line.dataset.l.split(" ");
    for (const line of lines) for (const n of numbers(line)) byLine.set(n, [...(byLine.get(n) || []), line]);
    const related = line => new Set(numbers(line).flatMap(n => byLine.get(n)));
    let pinned = null;
    const light = line => {
      lines.forEach(l => l.classList.remove("ts-lit"));
      if (!line) return;
      const lit = related(line);
      lit.forEach(l => l.classList.add("ts-lit"));
      for (const pre of all(linked, "pre")) {
        if (pre.contains(line) || !pre.offsetParent) continue;
        const target = [...pre.children].find(l => lit.has(l));
        if (!target) continue;
        const top = target.offsetTop - pre.offsetTop;  // scrolls the column, never the page
        if (top < pre.scrollTop || top + target.offsetHeight > pre.scrollTop + pre.clientHeight) pre.scrollTop = top - pre.clientHeight / 3;
      }
    };
    const pin = line => {
      if (pinned) related(pinned).forEach(l => { l.classList.remove("ts-pin"); l.setAttribute("aria-selected", false); });
      pinned = pinned === line ? null : line;
      if (pinned) related(pinned).forEach(l => { l.classList.add("ts-pin"); l.setAttribute("aria-selected", true); });
      light(pinned);
    };
    for (const line of lines) {
      line.setAttribute("role", "option");
      line.addEventListener("pointerenter", () => light(line));
      line.addEventListener("pointerleave", () => light(pinned));
      line.addEventListener("focus", () => light(line));
      line.addEventListener("blur", () => light(pinned));
      line.addEventListener("click", () => pin(line));
      line.addEventListener("keydown", event => {
        if (event.key === "Escape" && pinned) pin(pinned);
        else if (event.key !== "Enter" && event.key !== " ") return;
        else pin(line);
        event.preventDefault();
        event.stopPropagation();
      });
    }
    for (const pre of all(linked, "pre")) {
      pre.setAttribute("role", "listbox");
      pre.setAttribute("aria-label", pre.dataset.side);
      const own = all(pre, ".ts-l");
      walkable(own, ["ArrowUp", "ArrowDown"], line => {
        const top = line.offsetTop - pre.offsetTop;
        if (top < pre.scrollTop) pre.scrollTop = top;
        else if (top + line.offsetHeight > pre.scrollTop + pre.clientHeight) pre.scrollTop = top + line.offsetHeight - pre.clientHeight;
      });
    }
  }

  for (const panel of all(document, ".tessera-panel:not(.ts-ready)")) {
    panel.classList.add("ts-ready");
    tabs(panel);
    all(panel, ".ts-tab").forEach(subjects);
    all(panel, ".ts-linked").forEach(linked => { levels(linked); link(linked); });
  }
})();

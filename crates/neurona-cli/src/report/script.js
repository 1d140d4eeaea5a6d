"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  // Light or dark: as the system says, until somebody says otherwise.
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  system.addEventListener("change", label);
  label();

  // Charts: the pointer or the arrow keys choose an epoch, and its values are shown.
  const { epochs, frame, charts } = JSON.parse(document.getElementById("data").textContent);
  const last = epochs.length - 1;
  const part = (tag, attributes, parent) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    parent.append(element);
    return element;
  };
  for (const chart of charts) {
    const svg = document.getElementById("chart-" + chart.id);
    if (!svg || last < 0) continue;
    const read = document.getElementById("read-" + chart.id);
    const cursor = part("line", { class: "cursor", y1: frame.top, y2: frame.bottom, visibility: "hidden" }, svg);
    const marks = chart.series.map((s) => part("circle", { class: "mark " + s.class, r: 5, visibility: "hidden" }, svg));
    const x = (i) => frame.left + (last ? i / last : 0.5) * (frame.right - frame.left);
    const y = (v) => frame.top + ((chart.high - v) / (chart.high - chart.low)) * (frame.bottom - frame.top);
    const text = (v) => (v === null ? "–" : chart.unit ? v.toFixed(1) + chart.unit : v.toFixed(4));
    let at = last;
    const show = (i) => {
      at = Math.max(0, Math.min(last, i));
      cursor.setAttribute("x1", x(at));
      cursor.setAttribute("x2", x(at));
      cursor.setAttribute("visibility", "visible");
      chart.series.forEach((s, k) => {
        const value = s.values[at];
        marks[k].setAttribute("visibility", value === null ? "hidden" : "visible");
        marks[k].setAttribute("cx", x(at));
        if (value !== null) marks[k].setAttribute("cy", y(value));
      });
      const said = `epoch ${epochs[at]}: ` + chart.series.map((s) => `${s.name} ${text(s.values[at])}`).join(", ");
      read.textContent = said;
      svg.setAttribute("aria-valuenow", epochs[at]);
      svg.setAttribute("aria-valuetext", said);
    };
    svg.setAttribute("role", "slider");
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("aria-valuemin", epochs[0]);
    svg.setAttribute("aria-valuemax", epochs[last]);
    svg.addEventListener("focus", () => show(at));
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const place = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      show(Math.round(((place - frame.left) / (frame.right - frame.left)) * last));
    });
    svg.addEventListener("keydown", (event) => {
      const page = Math.max(1, Math.round(last / 10));
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowDown: at - 1, ArrowUp: at + 1, PageDown: at - page, PageUp: at + page, Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show(to);
    });
    show(last);
  }

  // The matrix: one cell is in the order of the Tab key, arrow keys move it.
  const matrix = document.getElementById("matrix");
  if (matrix) {
    const rows = [...matrix.tBodies[0].rows];
    const names = rows.map((row) => row.cells[0].textContent);
    const read = document.getElementById("read-matrix");
    const cell = (r, c) => rows[r] && rows[r].cells[c + 1];
    const tell = (r, c) => {
      const count = cell(r, c).textContent || "0";
      const total = [...rows[r].cells].slice(1).reduce((sum, td) => sum + Number(td.textContent || 0), 0);
      read.textContent = r === c ? `${names[r]}: ${count} of ${total} recognised` : `${names[r]} taken for ${names[c]}: ${count} of ${total}`;
    };
    const place = (td) => [td.parentElement.rowIndex - 1, td.cellIndex - 1];
    matrix.setAttribute("role", "grid");
    let here = cell(0, 0);
    if (here) here.tabIndex = 0;
    const go = (td) => {
      here.removeAttribute("tabindex");
      here = td;
      here.tabIndex = 0;
      here.focus();
    };
    matrix.addEventListener("focusin", (event) => { if (event.target.cellIndex > 0) tell(...place(event.target)); });
    matrix.addEventListener("pointerover", (event) => {
      const td = event.target.closest("tbody td");
      if (td) tell(...place(td));
    });
    matrix.addEventListener("click", (event) => {
      const td = event.target.closest("tbody td");
      if (td) go(td);
    });
    matrix.addEventListener("keydown", (event) => {
      const [r, c] = place(here);
      const end = names.length - 1;
      const to = { ArrowLeft: [r, c - 1], ArrowRight: [r, c + 1], ArrowUp: [r - 1, c], ArrowDown: [r + 1, c], Home: [r, 0], End: [r, end], PageUp: [0, c], PageDown: [end, c] }[event.key];
      const td = to && to[1] >= 0 && cell(...to);
      if (!to) return;
      event.preventDefault();
      if (td) go(td);
    });
  }

  // The table of classes: headings become buttons that sort.
  for (const table of document.querySelectorAll(".sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const sort = document.createElement("button");
      sort.type = "button";
      sort.textContent = head.textContent;
      head.replaceChildren(sort);
      sort.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((h) => h.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const key = (row) => row.cells[column].dataset.v;
        const order = (a, b) => (column ? Number(key(a)) - Number(key(b)) : a.cells[0].textContent.localeCompare(b.cells[0].textContent));
        const rows = [...table.tBodies[0].rows].sort((a, b) => (up ? order(a, b) : order(b, a)));
        table.tBodies[0].append(...rows);
      });
    });
  }
})();

// What a table of results gets where scripts run: rows are sorted, filtered and copied. Inlined into each table,
// so no `export`: the tests evaluate it.
// Numbers by size, texts by their characters; what is empty stands last either way.
const compare = (a, b) => {
  if (a === "" || b === "") return (a === "") - (b === "");
  const x = Number(a), y = Number(b);
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
};
// Is `index` in "0-3,7", in one of several such lines?
const covers = (text, index) => text.split(/[^0-9-]+/).some((run) => {
  const [first, last = first] = run.split("-");
  return run !== "" && Number(first) <= index && index <= Number(last);
});
// "dp=1 nan" is an index on an axis and a word; a row has to fit all of them.
const fits = (query, text, axes) => query.toLowerCase().split(/\s+/).every((word) => {
  const [, axis, index] = word.match(/^([^=]+)=(\d+)$/) ?? [];
  return axis in axes ? covers(axes[axis], Number(index)) : text.toLowerCase().includes(word);
});
// A cell as one line: of what can be unfolded, its summary. A tab or a line break would begin another cell.
const flat = (text) => text.replace(/\s+/g, " ").trim();
const textOf = (cell) => {
  const parts = cell.innerHTML.includes("<br") ? cell.innerText : (cell.querySelector("summary") ?? cell).textContent;
  return flat(parts);
};
const tsv = (lines) => lines.map((cells) => cells.join("\t")).join("\n");
const copy = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.body.appendChild(document.createElement("textarea"));
    area.value = text;
    area.select();
    document.execCommand("copy");
    area.remove();
  }
};
const make = (parent, tag, attributes = {}, text = "") => {
  const made = parent.appendChild(document.createElement(tag));
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(text);
  return made;
};
// The table of all rows; above it there may be one that sums them up.
const tableOf = (root) => (root.querySelector(":scope > .mb-all") ?? root).querySelector(":scope > table");
const equip = (table) => {
  const heads = [...table.tHead.rows[0].cells];
  const names = heads.map((head) => head.textContent);
  const rows = [...table.tBodies[0].rows];
  const isOdd = (row) => /mb-(odd|bad)/.test(row.className);
  const axesOf = (row) => Object.fromEntries(heads.flatMap((head, i) =>
    (head.dataset.axis ?? "").split(" ").filter(Boolean).map((axis) => [axis.toLowerCase(), row.cells[i].innerHTML])));
  const bar = document.createElement("div");
  bar.className = "mb-tools";
  table.before(bar);
  const example = heads.at(1)?.dataset.axis ?? "rank";
  const query = make(bar, "input", { type: "search", "aria-label": "filter rows", placeholder: `filter, ${example}=0` });
  const label = rows.some(isOdd) && make(bar, "label");
  const only = label && make(label, "input", { type: "checkbox" });
  if (label) label.append(" differences only");
  const button = make(bar, "button", { type: "button" }, "copy as TSV");
  const status = make(bar, "span", { role: "status", class: "mb-dim" });
  const filter = () => {
    for (const row of rows) {
      row.hidden = !(fits(query.value.trim(), row.textContent, axesOf(row)) && (!only.checked || isOdd(row)));
    }
    const count = rows.filter((row) => !row.hidden).length;
    status.textContent = count < rows.length ? `${count} of ${rows.length} rows` : "";
  };
  query.addEventListener("input", filter);
  if (only) only.addEventListener("change", filter);
  query.addEventListener("keydown", (event) => event.stopPropagation());
  button.addEventListener("click", async () => {
    const shown = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    await copy(tsv([names, ...shown.map((row) => [...row.cells].map(textOf))]));
    status.textContent = `${shown.length} rows copied`;
  });
  const keyOf = (row, i) => row.cells[i].dataset.v ?? flat(row.cells[i].textContent);
  heads.forEach((head, i) => {
    head.textContent = "";
    make(head, "button", { type: "button", title: `sort by ${names[i]}` }, names[i]).addEventListener("click", () => {
      const isDown = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      const sorted = rows.map((row) => [keyOf(row, i), row]).sort(([a], [b]) =>
        a === "" || b === "" || !isDown ? compare(a, b) : compare(b, a));
      table.tBodies[0].append(...sorted.map(([, row]) => row));
    });
  });
};
const enhance = (page) => {
  for (const root of page.querySelectorAll(".mb-result:not(.mb-on)")) {
    root.classList.add("mb-on");
    const table = tableOf(root);
    if (table?.tBodies[0].rows.length >= 5) equip(table);
  }
};

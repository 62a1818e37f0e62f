// The interactive table of a result: virtual rows, a grid of cells in the mesh's axes, and a value's page on request.
import { GONE, tell, withHome } from "./home.js";

const ROW = 26; // pixels, one line and its border; what is not in sight is not in the page
const SPARE = 12;
const SHOWN = 14;

// The place of a rank in a mesh whose last axis runs fastest.
export const placeOf = (rank, axes) => {
  const place = [];
  for (const [, size] of axes.toReversed()) {
    place.unshift(rank % size);
    rank = Math.floor(rank / size);
  }
  return place;
};

export const medianOf = (numbers) => {
  const finite = numbers.filter(Number.isFinite).sort((a, b) => a - b);
  const half = finite.length >> 1;
  return finite.length % 2 ? finite[half] : finite.length ? (finite[half - 1] + finite[half]) / 2 : 0;
};

export const amount = (number) => {
  if (!Number.isFinite(number)) return Number.isNaN(number) ? "nan" : number > 0 ? "inf" : "-inf";
  if (number === 0) return "0";
  return `${number > 0 ? "+" : ""}${Number(number.toPrecision(2))}`;
};

export const secondsText = (seconds) =>
  Number.isNaN(seconds) ? "" : seconds < 0.005 ? "<0.01 s" : `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;

// The message of the kernel as a row a rank.
export const rowsOf = ({ axes, ranks, groups }, [group, numbers, seconds]) => {
  const middle = medianOf(ranks.map((_, i) => (groups[group[i]].is_number ? numbers[i] : NaN)));
  return ranks.map((rank, i) => {
    const own = groups[group[i]];
    return {
      ...own, rank, group: group[i], place: placeOf(rank, axes), seconds: seconds[i],
      number: own.is_number ? numbers[i] : null, away: own.is_number ? numbers[i] - middle : null,
    };
  });
};

export const columnsOf = (axes, rows) => [
  { name: "rank", width: "64px", text: (row) => `${row.rank}`, key: (row) => row.rank },
  ...(axes.length > 1 ? axes : []).map(([name], i) =>
    ({ name, width: "52px", text: (row) => `${row.place[i]}`, key: (row) => row.place[i] })),
  { name: "value", width: "auto", text: (row) => row.text, key: (row) => row.number ?? row.text },
  rows.some((row) => row.number !== null) &&
    { name: "Δ to median", width: "96px", text: (row) => (row.away === null ? "" : amount(row.away)), key: (row) => row.away },
  rows.some((row) => row.facts) && { name: "type", width: "150px", text: (row) => row.facts, key: (row) => row.facts },
  { name: "time", width: "72px", text: (row) => secondsText(row.seconds), key: (row) => row.seconds },
  rows.some((row) => row.state !== "ok") &&
    { name: "state", width: "64px", text: (row) => row.state, key: (row) => row.state },
].filter(Boolean);

const isNothing = (key) => key === null || key === "" || Number.isNaN(key);

// Sorted by a column; what has nothing there stands last either way.
export const sorted = (rows, key, isDown) => rows.toSorted((a, b) => {
  const [x, y] = [key(a), key(b)];
  if (isNothing(x) || isNothing(y)) return isNothing(x) - isNothing(y);
  const order = typeof x === "number" && typeof y === "number" ? x - y : `${x}`.localeCompare(`${y}`);
  return isDown ? -order : order;
});

// "dp=1 nan" asks for a place on an axis and for a word; "dp=0-3" for a run of places.
export const fits = (row, query, axes) => query.toLowerCase().split(/\s+/).every((word) => {
  const [, axis, first, last = first] = word.match(/^([^=]+)=(\d+)(?:-(\d+))?$/) ?? [];
  const index = axes.findIndex(([name]) => name.toLowerCase() === axis);
  if (axis === "rank" || index >= 0) {
    const at = axis === "rank" ? row.rank : row.place[index];
    return Number(first) <= at && at <= Number(last);
  }
  return `${row.text} ${row.facts} ${row.state}`.toLowerCase().includes(word);
});

// How the cells of the grid stand: the last axis to the right, the others down; one axis alone is wrapped.
export const gridOf = (axes) => {
  const count = axes.reduce((product, [, size]) => product * size, 1);
  const columns = axes.length > 1 ? axes.at(-1)[1] : Math.min(count, Math.max(8, Math.ceil(Math.sqrt(count * 2))));
  return { columns, lines: Math.ceil(count / columns) };
};

// Which rows to draw for a scroll position.
export const windowOf = (top, count) => {
  const first = Math.max(0, Math.min(Math.floor(top / ROW) - SPARE, count));
  return [first, Math.min(count, first + SHOWN + 2 * SPARE)];
};

export const tsv = (columns, rows) => [
  columns.map((column) => column.name),
  ...rows.map((row) => columns.map((column) => column.text(row).replace(/\s+/g, " "))),
].map((cells) => cells.join("\t")).join("\n");

const make = (parent, tag, attributes = {}, text = "") => {
  const made = parent.appendChild(document.createElement(tag));
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(text);
  return made;
};

const copy = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make(document.body, "textarea");
    area.value = text;
    area.select();
    document.execCommand("copy");
    area.remove();
  }
};

const isOdd = (row) => row.is_odd || row.state !== "ok";

// The table itself: draws what is in sight of `rows`.
const makeTable = (root, columns, { choose, sort }) => {
  const scroll = make(root, "div", { class: "mb-scroll", tabindex: 0, role: "group", "aria-label": "rows" });
  const table = make(scroll, "table", { "aria-label": "result of each rank" });
  const widths = make(table, "colgroup");
  const head = make(make(table, "thead"), "tr", { "aria-rowindex": 1 });
  const body = make(table, "tbody");
  let rows = [], chosen = null, drawn = "", pending = 0;
  let lines = new Map(); // of what is drawn, by row: scrolling makes few new ones
  columns.forEach((column, i) => {
    make(widths, "col").style.width = column.width;
    make(make(head, "th", { scope: "col" }), "button", { type: "button" }, column.name)
      .addEventListener("click", () => sort(i));
  });
  const space = (count) => {
    if (!count) return [];
    const line = document.createElement("tr");
    line.className = "mb-space";
    line.setAttribute("aria-hidden", "true");
    make(line, "td", { colspan: columns.length }).style.height = `${count * ROW}px`;
    return [line];
  };
  const lineOf = (row) => {
    const line = document.createElement("tr");
    line.className = row.state !== "ok" ? "mb-bad" : row.is_odd ? "mb-odd" : "";
    line.dataset.rank = row.rank;
    columns.forEach((column, i) => {
      const cell = i ? make(line, "td") : make(line, "th", { scope: "row" });
      if (!i && isOdd(row)) make(cell, "span", { class: "mb-mark" }, row.state !== "ok" ? "✗ " : "≠ ");
      cell.append(column.text(row));
      if (column.name === "value") cell.className = "mb-value";
    });
    return line;
  };
  const draw = () => {
    pending = 0;
    const [first, last] = windowOf(scroll.scrollTop, rows.length);
    const state = `${first} ${last} ${chosen}`;
    if (state !== drawn) {
      drawn = state;
      lines = new Map(rows.slice(first, last).map((row) => [row, lines.get(row) ?? lineOf(row)]));
      [...lines].forEach(([row, line], i) => {
        line.classList.toggle("mb-chosen", row.rank === chosen);
        line.setAttribute("aria-rowindex", first + i + 2);
      });
      body.replaceChildren(...space(first), ...lines.values(), ...space(rows.length - last));
    }
    root.dataset.frame = Number(root.dataset.frame ?? 0) + 1;
  };
  const redraw = () => { pending ||= requestAnimationFrame(draw); };
  scroll.addEventListener("scroll", redraw, { passive: true });
  body.addEventListener("click", (event) => {
    const rank = event.target.closest("tr")?.dataset.rank;
    if (rank !== undefined) choose(Number(rank));
  });
  scroll.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !rows.length) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook would go to another cell
    const at = rows.findIndex((row) => row.rank === chosen);
    choose(rows[Math.max(0, Math.min(rows.length - 1, at + step))].rank);
  });
  return {
    show(next) { rows = next; drawn = ""; table.setAttribute("aria-rowcount", rows.length + 1); redraw(); },
    mark(rank) {
      chosen = rank;
      const at = rows.findIndex((row) => row.rank === rank) * ROW;
      if (at >= 0 && (at < scroll.scrollTop || at > scroll.scrollTop + scroll.clientHeight - 3 * ROW)) scroll.scrollTop = at - 4 * ROW;
      redraw();
    },
    order(index, isDown) {
      [...head.cells].forEach((cell, i) => (i === index ? cell.setAttribute("aria-sort", isDown ? "descending" : "ascending") : cell.removeAttribute("aria-sort")));
    },
  };
};

// The grid: a cell a rank, coloured by value, state or time; failures are crossed, odd ones dotted, nan a small square.
const makeMap = (root, { axes, palette, nan }, rows, choose) => {
  const { columns, lines } = gridOf(axes);
  const size = Math.max(6, Math.min(18, Math.floor(560 / columns), Math.floor(260 / lines)));
  const box = make(root, "div", { class: "mb-map" });
  const canvas = make(box, "canvas", { tabindex: 0, role: "application", "aria-label": "ranks as a grid: arrow keys choose one" });
  const legend = make(box, "div", { class: "mb-legend" });
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [columns * size, lines * size];
  Object.assign(canvas, { width: width * scale, height: height * scale });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const byRank = new Map(rows.map((row) => [row.rank, row]));
  let shown = new Set(byRank.keys()), chosen = null, by = "state";
  const bounds = () => {
    const finite = rows.map((row) => (by === "time" ? row.seconds : row.number)).filter((x) => x !== null && Number.isFinite(x));
    return finite.length ? [Math.min(...finite), Math.max(...finite)] : null;
  };
  const colourOf = (row, range, style) => {
    if (row.state !== "ok") return style.getPropertyValue("--mb-bad");
    const number = by === "time" ? row.seconds : row.number;
    if (by === "state" || number === null || !range) return style.getPropertyValue(row.is_odd ? "--mb-bar" : "--mb-ok");
    if (!Number.isFinite(number)) return nan;
    const share = range[1] > range[0] ? (number - range[0]) / (range[1] - range[0]) : 0.5;
    return palette[Math.round(share * (palette.length - 1))];
  };
  const draw = () => {
    const style = getComputedStyle(root), range = by === "state" ? null : bounds();
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    for (const row of rows) {
      const [x, y] = [(row.rank % columns) * size, Math.floor(row.rank / columns) * size];
      pen.globalAlpha = shown.has(row.rank) ? 1 : 0.2;
      pen.fillStyle = colourOf(row, range, style);
      pen.fillRect(x + 0.5, y + 0.5, size - 1.5, size - 1.5);
      const isNan = by !== "state" && row.number !== null && Number.isNaN(row.number);
      pen.strokeStyle = pen.fillStyle = "#fff";
      if (row.state !== "ok") {
        pen.beginPath();
        pen.moveTo(x + 2.5, y + 2.5); pen.lineTo(x + size - 3.5, y + size - 3.5);
        pen.moveTo(x + size - 3.5, y + 2.5); pen.lineTo(x + 2.5, y + size - 3.5);
        pen.stroke();
      } else if (isNan) pen.strokeRect(x + size / 2 - 2.5, y + size / 2 - 2.5, 4, 4);
      else if (row.is_odd) pen.fillRect(x + size / 2 - 1.5, y + size / 2 - 1.5, 3, 3);
      if (row.rank === chosen) {
        pen.globalAlpha = 1;
        pen.lineWidth = 2;
        pen.strokeStyle = style.getPropertyValue("--jp-ui-font-color1") || "CanvasText";
        pen.strokeRect(x + 0.5, y + 0.5, size - 1.5, size - 1.5);
        pen.lineWidth = 1;
      }
    }
    drawLegend(range);
  };
  const drawLegend = (range) => {
    legend.replaceChildren();
    const [names, across] = [axes.slice(0, -1).map(([name]) => name).join(" × "), axes.at(-1)];
    make(legend, "div", {}, axes.length > 1 ? `${across[0]} → · ${names} ↓` : `${across[0]} 0…${across[1] - 1}, line by line`);
    const line = make(legend, "div");
    if (range) {
      line.append(range[0].toPrecision(4) * 1);
      make(line, "span", { class: "mb-ramp", role: "img", "aria-label": "from dark to bright" }).style.background = `linear-gradient(90deg,${palette.join()})`;
      line.append(range[1].toPrecision(4) * 1);
      if (by === "value" && rows.some((row) => Number.isNaN(row.number))) line.append("   □ nan");
    } else {
      const odd = rows.filter((row) => row.is_odd && row.state === "ok").length, bad = rows.filter((row) => row.state !== "ok").length;
      line.append([odd && `· ${odd} differ`, bad && `✗ ${bad} failed`].filter(Boolean).join("   ") || "all ended well");
    }
  };
  const at = (event) => Math.floor(event.offsetY / size) * columns + Math.floor(event.offsetX / size);
  canvas.addEventListener("click", (event) => byRank.has(at(event)) && choose(at(event)));
  canvas.addEventListener("mousemove", (event) => {
    const row = byRank.get(at(event));
    canvas.title = row ? `rank ${row.rank}: ${row.text}` : "";
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = (chosen ?? rows[0].rank) + (chosen === null ? 0 : step);
    if (byRank.has(next)) choose(next);
  });
  return {
    colour(next) { by = next; draw(); },
    show(next) { shown = new Set(next.map((row) => row.rank)); draw(); },
    mark(rank) { chosen = rank; draw(); },
  };
};

const nameOf = (row, axes) =>
  `rank ${row.rank}${axes.length > 1 ? ` · ${axes.map(([name], i) => `${name}=${row.place[i]}`).join(", ")}` : ""}`;

const build = (model, root, message, buffers) => {
  const rows = rowsOf(message, buffers), { axes } = message, columns = columnsOf(axes, rows);
  let order = null, isDown = false, wanted = 0;
  root.replaceChildren();
  const bar = make(root, "div", { class: "mb-tools" });
  const query = make(bar, "input", { type: "search", "aria-label": "filter rows", placeholder: `filter, ${axes[0][0]}=0` });
  const only = rows.some(isOdd) && make(make(bar, "label", {}, ""), "input", { type: "checkbox" });
  if (only) only.parentElement.append(" differences only");
  const colours = make(bar, "select", { "aria-label": "colour of the cells" });
  const ways = [rows.some((row) => row.number !== null) && "value", "state", "time"].filter(Boolean);
  for (const way of ways) make(colours, "option", { value: way }, `colour by ${way}`);
  const button = make(bar, "button", { type: "button" }, "copy as TSV");
  const status = make(bar, "span", { role: "status", class: "mb-dim" });
  const close = make(bar, "button", { type: "button", class: "mb-close", title: "a static table, which needs no kernel" }, "keep as static");
  const say = (message) => { if (!tell(model, message)) status.textContent = GONE; };
  const filtered = () => rows.filter((row) => fits(row, query.value.trim(), axes) && (!only.checked || isOdd(row)));
  const choose = (rank) => {
    table.mark(rank);
    map.mark(rank);
    pane.hidden = false;
    const row = rows.find((each) => each.rank === rank);
    title.textContent = [nameOf(row, axes), row.facts, secondsText(row.seconds)].filter(Boolean).join(" · ");
    page.textContent = row.text;
    wanted += 1;
    if (row.has_more) say({ kind: "open", id: wanted, rank });
  };
  const show = () => {
    const kept = filtered();
    table.show(order === null ? kept : sorted(kept, columns[order].key, isDown));
    map.show(kept);
    status.textContent = kept.length < rows.length ? `${kept.length} of ${rows.length} ranks` : `${rows.length} ranks`;
  };
  const sort = (index) => {
    isDown = order === index && !isDown;
    order = index;
    table.order(index, isDown);
    show();
  };
  const map = makeMap(root, message, rows, choose);
  const table = makeTable(root, columns, { choose, sort });
  const pane = make(root, "div", { class: "mb-pane", role: "region", "aria-label": "value of the chosen rank", tabindex: 0 });
  const title = make(pane, "h4"), page = make(pane, "div");
  pane.hidden = true;
  query.addEventListener("input", show);
  query.addEventListener("keydown", (event) => event.stopPropagation());
  if (only) only.addEventListener("change", show);
  colours.addEventListener("change", () => map.colour(colours.value));
  close.addEventListener("click", () => say({ kind: "close" }));
  button.addEventListener("click", async () => {
    const kept = filtered();
    await copy(tsv(columns, order === null ? kept : sorted(kept, columns[order].key, isDown)));
    status.textContent = `${kept.length} rows copied`;
  });
  map.colour(ways[0]);
  show();
  return { open: ({ id, html }) => { if (id === wanted) page.innerHTML = html; } };
};

const columnsIn = (buffers) => {
  const [group, numbers, seconds] = buffers.map((view) => view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
  return [new Uint32Array(group), new Float64Array(numbers), new Float64Array(seconds)];
};

const render = ({ model, el }) => {
  const root = make(el, "div", { class: "meshbook mb-explorer", role: "region", "aria-label": "interactive table of a result" }, "…");
  let view = null;
  const take = (message, buffers) => {
    if (message.kind === "rows" && !view) view = build(model, root, message, columnsIn(buffers));
    if (message.kind === "page") view?.open(message);
  };
  model.on("msg:custom", take);
  tell(model, { kind: "hello" });
  return () => model.off("msg:custom", take);
};

export default withHome({ render });

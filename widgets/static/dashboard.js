// The view of widgets/dashboard.py. On a message it only notes what came, and paints in the next animation frame.
import {
  BAD, NUMBERS, applyDelta, axesText, bytes, decode, floats, layout, neighbour, numberText, range, rankText,
  rectangle, selector, shade,
} from "./cells.js";
import { GONE, tell, withHome } from "./home.js";

const PALE = new Set(["idle", "starting"]); // their glyphs are in the other ink
const BEAT = 5000; // milliseconds between two signs of life

const PARTS = `<div class="mbd-said" role="status" aria-live="polite"></div>
<div class="mbd-body"><div class="mbd-main">
<div class="mbd-chips"><span class="mbd-counts"></span><label>colour by <select aria-label="colour by"></select></label></div>
<div class="mbd-row"><div class="mbd-map"><canvas class="mbd-grid" tabindex="0" role="application"></canvas><div class="mbd-axes"></div></div>
<figure class="mbd-curve" hidden><canvas></canvas><figcaption></figcaption></figure></div>
<div class="mbd-pick"><code></code><button type="button" class="mbd-copy" hidden>copy</button><span class="mbd-live"></span></div>
<div class="mbd-spoken" aria-live="polite"></div></div>
<aside aria-label="selected ranks"><div class="mbd-head"></div><dl></dl><div class="mbd-buttons"></div><div class="mbd-note"></div>
<div class="mbd-ack" role="status"></div><pre hidden tabindex="0" aria-label="stacks"></pre></aside></div>`;
const BUTTONS = [["interrupt", "interrupt"], ["unstick", "un-stick"], ["stacks", "stacks"], ["restart", "restart"], ["debug", "debug"]];

// What one widget knows, whichever views it has: it hears messages before the first of them is there.
function makeStore() {
  return { ranks: [], head: null, arrived: 0, curves: null, panel: null, heard: 0, selected: [], focus: 0, over: "", draws: new Set() };
}

function initialize(store, { model }) {
  model.on("msg:custom", (message, buffers) => {
    take(store, message, buffers, model.get("states"));
    for (const draw of store.draws) draw(message.kind, message);
  });
}

function take(store, message, buffers, states) {
  store.heard = performance.now();
  if (message.kind === "frame") {
    const view = bytes(buffers[0]);
    if (message.m === "full") store.ranks = decode(view, states);
    else if (store.ranks.length) applyDelta(store.ranks, view, states);
    store.head = message;
    store.arrived = performance.now();
  } else if (message.kind === "curves") {
    store.curves = { name: message.name, ranks: message.ranks, band: floats(buffers[0]), lines: buffers.slice(1).map(floats) };
  } else if (message.kind === "panel") store.panel = message;
  else if (message.kind === "end") store.over = message.text;
}

function render(store, { model, el }) {
  const id = Math.random().toString(36).slice(2);
  const root = document.createElement("div");
  root.className = "mbd";
  root.innerHTML = PARTS;
  root.querySelector(".mbd-note").textContent = model.get("note");
  el.append(root);
  const find = (query) => root.querySelector(query);
  const view = { model, store, root, find, id, by: "state", pending: new Map(), asked: "", dirty: false, grid: null };
  const leave = new AbortController();
  makeButtons(view);
  // Jupyter looks for its shortcuts before an element hears of a key, and asks only the one that has the focus.
  for (const each of root.querySelectorAll("button, select, [tabindex]")) each.dataset.lmSuppressShortcuts = "true";
  listen(view, leave.signal);
  const draw = (kind, message) => { if (kind === "ack") acknowledge(view, message); later(view); };
  store.draws.add(draw);
  const say = (kind) => send(view, { kind });
  const beat = setInterval(() => { if (!document.hidden && root.isConnected) say("beat"); freshness(view); }, BEAT / 5);
  document.addEventListener("visibilitychange", () => { say(document.hidden ? "bye" : "hello"); later(view); }, { signal: leave.signal });
  model.on("change:sizes", () => { store.ranks = []; select(view, []); later(view); });
  say("hello");
  later(view);
  return () => { leave.abort(); clearInterval(beat); store.draws.delete(draw); say("bye"); };
}

function send(view, message) {
  if (tell(view.model, { ...message, view: view.id })) return;
  view.store.over ||= GONE;
  later(view);
}

function later(view) {
  if (view.dirty || document.hidden) return;
  view.dirty = true;
  requestAnimationFrame(() => { view.dirty = false; paint(view); });
}

function paint(view) {
  const { store, find, root } = view;
  if (!store.head || !root.isConnected) return;
  const started = performance.now();
  paintHead(view);
  paintGrid(view);
  paintCurve(view);
  paintPanel(view);
  freshness(view);
  root.dataset.frame = store.head.i + 1; // tests wait for it
  root.dataset.drawn = (performance.now() - started).toFixed(2);
  if (store.over) { root.classList.add("mbd-over"); for (const each of root.querySelectorAll("button")) each.disabled = true; }
  find("canvas").setAttribute("aria-label", `${store.ranks.length} ranks: ${Object.entries(store.head.counts).map(([s, n]) => `${n} ${s}`).join(", ")}. Arrow keys move, shift extends.`);
}

function setText(node, text) { if (node.textContent !== text) node.textContent = text; }

function paintHead({ store, find, model, by }) {
  const { lead, rest, tone, counts, names } = store.head;
  const said = find(".mbd-said");
  said.dataset.tone = tone;
  if (said.textContent !== lead + (rest ? `: ${rest}` : "")) {
    said.replaceChildren(Object.assign(document.createElement("b"), { textContent: lead }), rest ? `: ${rest}` : "");
  }
  const chips = Object.entries(counts).map(([state, count]) => {
    const chip = Object.assign(document.createElement("span"), { className: "mbd-chip", textContent: `${count} ${state}` });
    chip.style.setProperty("--c", `var(--mbd-${state})`);
    return chip;
  });
  find(".mbd-counts").replaceChildren(...chips);
  const has = (key) => store.ranks.some((each) => each && each[key] !== null);
  const options = ["state", ...Object.keys(NUMBERS).filter(has), ...names.map((name) => `metric:${name}`)];
  const menu = find("select");
  if (menu.dataset.options !== options.join("|")) {
    menu.dataset.options = options.join("|");
    menu.replaceChildren(...options.map((key) => new Option(key.startsWith("metric:") ? key.slice(7) : (NUMBERS[key] || ["state"])[0], key, false, key === by)));
  }
  setText(find(".mbd-axes"), axesText(model.get("axes"), model.get("sizes")));
}

function paintGrid(view) {
  const { store, model, find, by } = view;
  const canvas = find(".mbd-grid");
  const grid = (view.grid = layout(model.get("sizes"), model.get("cols"), find(".mbd-row").clientWidth));
  const { cell, places } = grid;
  const context = sized(canvas, grid.columns * cell + 4, grid.rows * cell + 4);
  const style = getComputedStyle(view.root);
  const theme = (name) => style.getPropertyValue(`--mbd-${name}`).trim();
  const palette = Object.fromEntries(model.get("states").map((state) => [state, theme(state)]));
  const inks = [theme("ink"), theme("ink-pale")];
  const key = by.startsWith("metric:") ? "metric" : by;
  const scale = key === "state" ? null : range(store.ranks.map((each) => each[key]));
  const chosen = new Set(store.selected);
  store.ranks.forEach((facts, rank) => {
    const [x, y] = [2 + places[rank][0] * cell, 2 + places[rank][1] * cell];
    const size = cell - 2;
    context.fillStyle = scale ? colour(facts[key], scale, theme("soft"), palette.failed) : palette[facts.state];
    context.fillRect(x, y, size, size);
    if (scale === null || BAD.has(facts.state)) glyph(context, facts.state, x, y, size, scale ? palette[facts.state] : inks[PALE.has(facts.state) ? 1 : 0]);
    if (chosen.has(rank)) frame(context, style.color, x, y, size, 2);
    if (rank === store.focus && document.activeElement === canvas) frame(context, theme("focus"), x - 1, y - 1, size + 2, 1.5);
  });
  // A metric comes in half its bits: two digits of it are true.
  const unit = key === "metric" ? (value) => numberText(Number(value.toPrecision(2))) : scale && NUMBERS[key][1];
  if (scale) setText(find(".mbd-axes"), `${find(".mbd-axes").textContent}   ${scaleText(unit(scale[0]), unit(scale[1]))}`);
}

const scaleText = (low, high) => (low === high ? `all ${low}` : `dark ${low} … bright ${high}`);

function colour(value, scale, none, bad) {
  if (value === null) return none;
  return Number.isFinite(value) ? shade(value, scale) : bad;
}

function frame(context, ink, x, y, size, width) {
  context.strokeStyle = ink;
  context.lineWidth = width;
  context.strokeRect(x + width / 2 - 1, y + width / 2 - 1, size + 2 - width, size + 2 - width);
}

// A shape for each state, for those who do not see colours; small cells have room for those that matter only.
function glyph(context, state, x, y, size, ink) {
  if (size < 12 && !BAD.has(state)) return;
  const [middleX, middleY, r] = [x + size / 2, y + size / 2, size * 0.24];
  context.strokeStyle = context.fillStyle = ink;
  context.lineWidth = Math.max(size / 9, 1.2);
  context.beginPath();
  if (state === "busy") { context.moveTo(middleX - r * 0.8, middleY - r); context.lineTo(middleX + r, middleY); context.lineTo(middleX - r * 0.8, middleY + r); context.fill(); return; }
  if (state === "idle") { context.arc(middleX, middleY, Math.max(size / 12, 1), 0, 7); context.fill(); return; }
  if (state === "waiting" || state === "starting") context.arc(middleX, middleY, r, state === "waiting" ? 0 : 1, 6.29);
  if (state === "stopped") { for (const dx of [-r / 2, r / 2]) { context.moveTo(middleX + dx, middleY - r); context.lineTo(middleX + dx, middleY + r); } }
  if (state === "failed") { for (const sign of [-1, 1]) { context.moveTo(middleX - r, middleY - r * sign); context.lineTo(middleX + r, middleY + r * sign); } }
  if (state === "dead") { context.moveTo(middleX - r, middleY - r * 0.3); context.lineTo(middleX + r, middleY - r * 0.3); context.moveTo(middleX, middleY - r * 1.3); context.lineTo(middleX, middleY + r * 1.3); }
  if (state === "debug") context.rect(middleX - r * 0.8, middleY - r * 0.8, r * 1.6, r * 1.6);
  context.stroke();
}

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function paintCurve({ store, find, root }) {
  const curves = store.curves;
  find(".mbd-curve").hidden = !curves;
  if (!curves) return;
  const [width, height] = [236, 62];
  const rows = Array.from({ length: curves.band.length / 4 }, (_, i) => curves.band.slice(i * 4, i * 4 + 4));
  const good = rows.filter((row) => row.every(Number.isFinite));
  const context = sized(find(".mbd-curve canvas"), width, height);
  const [left, right] = range(rows.map((row) => row[0]));
  const [low, high] = range(good.flatMap((row) => [row[1], row[3]]));
  const x = (step) => 2 + ((step - left) / (right - left || 1)) * (width - 4);
  const y = (value) => height - 3 - ((value - low) / (high - low || 1)) * (height - 6);
  const accent = getComputedStyle(root).getPropertyValue("--mbd-accent");
  const trace = (points) => { context.beginPath(); points.forEach(([step, value], i) => context[i ? "lineTo" : "moveTo"](x(step), y(value))); };
  context.fillStyle = context.strokeStyle = accent;
  context.globalAlpha = 0.22;
  trace([...good.map((row) => [row[0], row[3]]), ...good.slice().reverse().map((row) => [row[0], row[1]])]);
  context.fill();
  context.globalAlpha = 1;
  context.lineWidth = 1.6;
  trace(good.map((row) => [row[0], row[2]]));
  context.stroke();
  context.strokeStyle = getComputedStyle(root).color;
  context.lineWidth = 1;
  for (const line of curves.lines) { trace(pairs(line).filter((pair) => pair.every(Number.isFinite))); context.stroke(); }
  const last = rows[rows.length - 1] || [0, 0, 0, 0];
  if (last.every(Number.isFinite)) { context.beginPath(); context.arc(x(last[0]), y(last[2]), 2, 0, 7); context.fill(); }
  const whose = curves.lines.length ? `, and rank${curves.lines.length > 1 ? "s" : ""} ${curves.ranks.join(", ")}` : "";
  const num_others = store.head.names.length - 1;
  const others = num_others > 0 ? ` · ${num_others} more under “colour by”` : "";
  setText(find("figcaption"), `${curves.name}: median and range${whose} · step ${numberText(last[0])}: ${numberText(last[2])}${others}`);
}

const pairs = (line) => Array.from({ length: line.length / 2 }, (_, i) => [line[i * 2], line[i * 2 + 1]]);

function paintPanel({ store, find, model }) {
  const aside = find("aside");
  aside.hidden = !store.selected.length || !store.panel;
  if (aside.hidden) return;
  const { title, sub, rows } = store.panel;
  if (find(".mbd-head").textContent !== `${title} ${sub}`) {
    find(".mbd-head").replaceChildren(Object.assign(document.createElement("b"), { textContent: title }), " ", Object.assign(document.createElement("span"), { textContent: sub }));
  }
  const list = find("dl");
  if (list.dataset.terms !== rows.map(([term]) => term).join("|")) {
    list.dataset.terms = rows.map(([term]) => term).join("|");
    list.replaceChildren(...rows.flatMap(([term]) => [Object.assign(document.createElement("dt"), { textContent: term }), document.createElement("dd")]));
  }
  rows.forEach(([, text], i) => setText(list.querySelectorAll("dd")[i], text));
  setText(find(".mbd-pick code"), selector(store.selected, model.get("axes"), model.get("sizes")));
}

function freshness({ store, find }) {
  if (!store.head) return;
  const seconds = Math.round((performance.now() - store.heard) / 1000);
  setText(find(".mbd-live"), store.over || (seconds < 6 ? "live" : `the kernel has said nothing for ${seconds} s`));
}

function select(view, ranks) {
  const { store, model, find } = view;
  store.selected = ranks;
  store.panel = ranks.length ? store.panel : null;
  find(".mbd-copy").hidden = !ranks.length;
  setText(find(".mbd-pick code"), selector(ranks, model.get("axes"), model.get("sizes")));
  setText(find(".mbd-ack"), "");
  find("pre").hidden = true;
  resetButtons(view);
  send(view, { kind: "select", ranks });
  later(view);
}

function speak(view) {
  const { store, model, find } = view;
  setText(find(".mbd-spoken"), rankText(store.focus, store.ranks[store.focus], model.get("axes"), model.get("sizes")));
}

function rankAt(view, event) {
  const box = view.find(".mbd-grid").getBoundingClientRect();
  const [x, y] = [event.clientX - box.left - 2, event.clientY - box.top - 2].map((at) => Math.floor(at / view.grid.cell));
  return view.grid.places.findIndex((place) => place[0] === x && place[1] === y);
}

function listen(view, signal) {
  const { store, model, find } = view;
  const canvas = find(".mbd-grid");
  let anchor = 0;
  const on = (node, type, act) => node.addEventListener(type, act, { signal });
  on(canvas, "pointerdown", (event) => {
    const rank = rankAt(view, event);
    if (rank < 0) return select(view, []);
    const former = store.selected;
    if (event.shiftKey) select(view, rectangle(view.grid.places, anchor, rank));
    else if (event.ctrlKey || event.metaKey) select(view, former.includes(rank) ? former.filter((each) => each !== rank) : [...former, rank]);
    else { anchor = rank; select(view, [rank]); }
    store.focus = rank;
    canvas.setPointerCapture(event.pointerId);
  });
  on(canvas, "pointermove", (event) => {
    const rank = view.grid ? rankAt(view, event) : -1;
    canvas.title = rank < 0 ? "" : rankText(rank, store.ranks[rank], model.get("axes"), model.get("sizes"));
    if (event.buttons !== 1 || rank < 0 || rank === store.focus || event.ctrlKey || event.metaKey) return;
    store.focus = rank;
    select(view, rectangle(view.grid.places, anchor, rank));
  });
  on(canvas, "keydown", (event) => {
    event.stopPropagation(); // else the notebook takes it for a command
    if (event.key === "Escape") return select(view, []);
    if (!event.key.startsWith("Arrow") && event.key !== "Home" && event.key !== "End" || !view.grid) return;
    event.preventDefault();
    store.focus = neighbour(view.grid.places, store.focus, event.key);
    if (!event.shiftKey) anchor = store.focus;
    select(view, rectangle(view.grid.places, anchor, store.focus));
    speak(view);
  });
  for (const type of ["focus", "blur"]) on(canvas, type, () => later(view));
  on(view.root, "keydown", (event) => { if (event.target.tagName === "BUTTON" || event.target.tagName === "SELECT") event.stopPropagation(); });
  on(find("select"), "change", (event) => {
    view.by = event.target.value;
    send(view, { kind: "metric", name: view.by.startsWith("metric:") ? view.by.slice(7) : "" });
    later(view);
  });
  on(find(".mbd-copy"), "click", () => copy(view, find(".mbd-pick code").textContent));
}

function copy(view, text) {
  navigator.clipboard?.writeText(text).then(() => setText(view.find(".mbd-copy"), "copied"), () => setText(view.find(".mbd-copy"), "not allowed"));
  setTimeout(() => setText(view.find(".mbd-copy"), "copy"), 1500);
}

function makeButtons(view) {
  view.find(".mbd-buttons").append(...BUTTONS.map(([action, label]) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: label });
    button.dataset.action = action;
    button.addEventListener("click", () => press(view, action, button));
    return button;
  }));
}

function resetButtons({ root }) {
  for (const [action, label] of BUTTONS) {
    const button = root.querySelector(`[data-action=${action}]`);
    setText(button, label);
    button.classList.remove("mbd-sure");
  }
}

// A restart loses what a rank holds: it wants a second press.
function press(view, action, button) {
  const { store } = view;
  if (action === "restart" && !button.classList.contains("mbd-sure")) return arm(view, button, "restart: sure?");
  const at = store.head.t + (performance.now() - store.arrived) / 1000;
  const id = `${view.id}-${view.pending.size}`;
  view.pending.set(id, action);
  send(view, { kind: "act", id, action, ranks: store.selected, runs: store.head.runs, at });
  setText(view.find(".mbd-ack"), `${action} …`);
  view.find("pre").hidden = true;
  if (action === "restart") resetButtons(view);
}

function arm(view, button, label) {
  button.classList.add("mbd-sure");
  setText(button, label);
  setTimeout(() => resetButtons(view), 3000);
}

function acknowledge(view, { id, ok, done, text, detail, next }) {
  const action = view.pending.get(id);
  if (action === undefined) return;
  const line = view.find(".mbd-ack");
  setText(line, text || (done ? "done" : ""));
  line.dataset.ok = ok;
  line.dataset.done = done;
  if (detail) Object.assign(view.find("pre"), { textContent: detail, hidden: false });
  if (next) arm(view, view.root.querySelector(`[data-action=${action}]`), next);
}

export default () => {
  const store = makeStore(); // for each widget: the models that anywidget hands to the two below are not the same object
  return withHome({ initialize: (context) => initialize(store, context), render: (context) => render(store, context) });
};

// The view of widgets/console.py. It holds no state of the debugger: each message "state" tells all there is.
import { GONE, tell, withHome } from "./home.js";
import { wordBefore, shared } from "./words.js";

const PARTS = `<div class="mbc-head"><b class="mbc-title"></b><span class="mbc-stops" role="group" aria-label="stopped ranks"></span>
<button type="button" class="mbc-close" title="cells ask again">close</button></div>
<div class="mbc-panes"><div class="mbc-source" tabindex="0" aria-label="source"></div>
<div class="mbc-side"><div class="mbc-label">frames</div><div class="mbc-frames" role="group" aria-label="frames"></div>
<div class="mbc-label">variables</div><div class="mbc-vars" tabindex="0" aria-label="variables"><table><tbody></tbody></table></div></div></div>
<div class="mbc-buttons"></div>
<pre class="mbc-out" tabindex="0" aria-live="polite" aria-label="output"></pre>
<form class="mbc-form"><label></label><input autocomplete="off" autocapitalize="off" spellcheck="false" aria-label="command"></form>`;
const BUTTONS = [["continue", "c"], ["next", "n"], ["step", "s"], ["return", "r"], ["up", "u"], ["down", "d"], ["leave", "q"], ["abort", "%abort"]];
const BEAT = 5000; // milliseconds between two signs of life
const MOST = 100_000; // characters of output that are kept

const el = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};

function makeStore() {
  return { state: { stops: [], focus: null, prompt: "", view: null }, out: "", over: "", history: [], draws: new Set() };
}

function initialize(store, { model }) {
  model.on("msg:custom", (message) => {
    if (message.kind === "state") store.state = message;
    else if (message.kind === "log") store.out = message.text;
    else if (message.kind === "out") store.out = (store.out + message.text).slice(-MOST);
    else if (message.kind === "end") store.over = message.text;
    for (const draw of store.draws) draw(message);
  });
}

function render(store, { model, el: host }) {
  const root = el("div", { className: "mbc", innerHTML: PARTS });
  host.append(root);
  const find = (query) => root.querySelector(query);
  const view = { store, model, root, find, id: Math.random().toString(36).slice(2), place: store.history.length, pending: 0, shown: null };
  find(".mbc-title").textContent = model.get("title");
  find(".mbc-buttons").append(...BUTTONS.map(([label, line]) => {
    const button = el("button", { type: "button", textContent: label, title: line });
    button.dataset.line = line;
    button.addEventListener("click", () => type(view, line));
    return button;
  }));
  for (const each of root.querySelectorAll("button, input, [tabindex]")) each.dataset.lmSuppressShortcuts = "true";
  const leave = new AbortController();
  listen(view, leave.signal);
  const draw = (message) => { if (message.kind === "completions") complete(view, message); else paint(view); };
  store.draws.add(draw);
  const say = (kind) => send(view, { kind });
  const beat = setInterval(() => say("beat"), BEAT);
  window.addEventListener("pagehide", () => say("bye"), { signal: leave.signal });
  say("hello");
  paint(view);
  return () => { leave.abort(); clearInterval(beat); store.draws.delete(draw); say("bye"); };
}

function send(view, message) {
  if (tell(view.model, { ...message, view: view.id })) return;
  view.store.over ||= GONE;
  paint(view);
}

function paint(view) {
  const { store, find, root } = view;
  const { state } = store;
  paintStops(view);
  paintView(view, state.view);
  const out = find(".mbc-out");
  if (out.textContent !== store.out) { out.textContent = store.out; out.scrollTop = out.scrollHeight; }
  out.hidden = !store.out;
  find("label").textContent = store.over || state.prompt || "no rank is stopped";
  const input = find("input");
  input.type = state.secret ? "password" : "text";
  const rests = Boolean(store.over) || !state.focus;
  input.disabled = rests;
  for (const each of root.querySelectorAll(".mbc-buttons button")) each.disabled = rests;
  find(".mbc-close").disabled = Boolean(store.over);
  root.dataset.asks = rests ? "" : state.prompt; // tests wait for it
}

function paintStops(view) {
  const { store, find } = view;
  const { stops, focus } = store.state;
  find(".mbc-stops").replaceChildren(...stops.map((stop) => {
    const isFocus = focus && focus[0] === stop.rank && focus[1] === stop.talk;
    const chip = el("button", { type: "button", textContent: `rank ${stop.rank}`, className: isFocus ? "mbc-focus" : "" });
    chip.title = `${stop.name}: ${stop.kind}${stop.place ? ` at ${stop.place}` : ""}${stop.thread ? `, thread ${stop.thread}` : ""}`;
    chip.setAttribute("aria-pressed", Boolean(isFocus));
    chip.dataset.lmSuppressShortcuts = "true";
    chip.addEventListener("click", () => { if (!isFocus) send(view, { kind: "line", text: `%rank ${stop.rank}` }); });
    return chip;
  }));
}

function paintView(view, shown) {
  const key = JSON.stringify(shown);
  if (key === view.shown) return;
  view.shown = key;
  const { find } = view;
  find(".mbc-panes").hidden = !shown;
  if (!shown) return;
  const lines = shown.lines.map((text, i) => {
    const number = shown.first + i;
    return el("div", { className: number === shown.line ? "mbc-line mbc-here" : "mbc-line" }, el("span", { textContent: number }), text || " ");
  });
  const source = find(".mbc-source");
  source.replaceChildren(el("div", { className: "mbc-file", textContent: shown.title }), ...lines);
  const here = source.querySelector(".mbc-here");
  if (here) source.scrollTop = here.offsetTop - source.offsetTop - source.clientHeight / 2;
  find(".mbc-frames").replaceChildren(...shown.levels.map((level, i) => {
    const button = el("button", { type: "button", textContent: level.place, title: level.source, className: level.is_user ? "" : "mbc-dim" });
    button.setAttribute("aria-pressed", i === shown.at);
    button.dataset.lmSuppressShortcuts = "true";
    button.addEventListener("click", () => type(view, `frame ${i}`));
    return button;
  }).reverse());
  const rows = shown.variables.map(([name, text]) => el("tr", {}, el("th", { textContent: name, scope: "row" }), el("td", { textContent: text, title: text })));
  find(".mbc-vars tbody").replaceChildren(...rows);
}

function type(view, line) {
  if (!view.store.state.focus) return;
  send(view, { kind: "line", text: line });
  view.find("input").focus();
}

function listen(view, signal) {
  const { store, find, root } = view;
  const input = find("input");
  const on = (node, kind, act) => node.addEventListener(kind, act, { signal });
  on(find("form"), "submit", (event) => {
    event.preventDefault();
    if (input.value && !store.state.secret && store.history.at(-1) !== input.value) store.history.push(input.value);
    view.place = store.history.length;
    type(view, input.value);
    input.value = "";
  });
  on(input, "keydown", (event) => {
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault();
      view.place = Math.min(Math.max(view.place + (event.key === "ArrowUp" ? -1 : 1), 0), store.history.length);
      input.value = store.history[view.place] ?? "";
    } else if (event.key === "Tab" && !event.shiftKey && wordBefore(input.value, input.selectionStart)) {
      event.preventDefault();
      view.pending += 1;
      send(view, { kind: "complete", id: view.pending, prefix: wordBefore(input.value, input.selectionStart) });
    }
  });
  on(root, "keydown", (event) => event.stopPropagation()); // else the notebook takes it for a command
  on(find(".mbc-close"), "click", () => send(view, { kind: "close" }));
}

// One word is put in; of several what they share, and they are listed.
function complete({ find, pending, store }, { id, prefix, words }) {
  const input = find("input");
  const end = input.selectionStart;
  if (id !== pending || wordBefore(input.value, end) !== prefix || !words.length) return;
  const text = shared(words);
  input.setRangeText(text, end - prefix.length, end, "end");
  if (words.length > 1) {
    store.out = `${store.out}${words.join("  ")}\n`;
    const out = find(".mbc-out");
    Object.assign(out, { textContent: store.out, hidden: false });
    out.scrollTop = out.scrollHeight;
  }
}

export default () => {
  const store = makeStore(); // for each widget: the models that anywidget hands to the two below are not the same object
  return withHome({ initialize: (context) => initialize(store, context), render: (context) => render(store, context) });
};

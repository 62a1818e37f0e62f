// The pure half of the dashboard: frames in; places, colours and selectors out. Tested by `node --test`.

const RECORD = 10; // bytes; see kernel/dashboard/frames.py
const MEMORY_STEP = 4 * 1024 * 1024;
export const BAD = new Set(["stopped", "failed", "dead"]);
export const NUMBERS = {
  cpu: ["cpu", (share) => `${Math.round(share * 100)} %`],
  memory: ["memory", bytesText],
  gpu: ["gpu use", (share) => `${Math.round(share * 100)} %`],
  gpuMemory: ["gpu memory", bytesText],
  progress: ["progress", (share) => `${Math.round(share * 100)} %`],
};
const CIVIDIS = [[0, 32, 77], [65, 77, 107], [124, 123, 120], [188, 175, 111], [255, 234, 70]];

export function decode(frame, states) {
  const ranks = [];
  for (let at = 0; at + RECORD <= frame.byteLength; at += RECORD) ranks.push(record(frame, at, states));
  return ranks;
}

function record(view, at, states) {
  const byte = (offset, steps) => (view.getUint8(at + offset) === 255 ? null : view.getUint8(at + offset) / steps);
  const word = (offset) => view.getUint16(at + offset, true);
  const size = (offset) => (word(offset) === 0xffff ? null : word(offset) * MEMORY_STEP);
  return {
    state: states[view.getUint8(at)], progress: byte(1, 254), cpu: byte(2, 100), gpu: byte(3, 100),
    memory: size(4), gpuMemory: size(6), metric: word(8) === 0xffff ? null : float(word(8)),
  };
}

// The number whose upper half this is.
function float(bits) {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint16(0, bits);
  return view.getFloat32(0);
}

// Changes `ranks` in place; gives the ranks that changed.
export function applyDelta(ranks, delta, states) {
  const changed = [];
  for (let at = 0; at + 2 + RECORD <= delta.byteLength; at += 2 + RECORD) {
    const rank = delta.getUint16(at, true);
    ranks[rank] = record(delta, at + 2, states);
    changed.push(rank);
  }
  return changed;
}

// Where each rank stands: the innermost axis across, the others down, in blocks side by side where that is too high.
export function layout(sizes, cols = 0, width = 900, mostRows = 20, mostColumns = 64) {
  const count = sizes.reduce((product, size) => product * size, 1);
  let across = cols || (sizes.length > 1 ? sizes[sizes.length - 1] : Math.min(count, count > 256 ? 64 : 16));
  if (across > mostColumns) across = mostColumns;
  const rows = Math.ceil(count / across);
  const blocks = cols ? 1 : Math.max(Math.min(Math.ceil(rows / mostRows), Math.floor((mostColumns + 16) / (across + 1))), 1);
  const high = Math.ceil(rows / blocks);
  const columns = blocks * (across + 1) - 1;
  const cell = Math.max(Math.min(count <= 64 ? 19 : count <= 256 ? 15 : 10, Math.floor((width - 4) / columns)), 5);
  const places = [];
  for (let rank = 0; rank < count; rank++) {
    const row = Math.floor(rank / across);
    const block = Math.floor(row / high);
    places.push([block * (across + 1) + (rank % across), row % high]);
  }
  return { places, cell, columns, rows: high, across };
}

export function axesText(names, sizes) {
  const span = (i) => `${names[i]} 0${sizes[i] > 1 ? ` … ${sizes[i] - 1}` : ""}`;
  const last = names.length - 1;
  return `${span(last)} →` + names.slice(0, last).map((_, i) => `  ${span(i)} ↓`).join("");
}

export function coordinates(rank, sizes) {
  const at = [];
  for (let i = sizes.length - 1; i >= 0; i--) {
    at.unshift(rank % sizes[i]);
    rank = Math.floor(rank / sizes[i]);
  }
  return at;
}

// The selector of exactly these ranks, to paste behind `%%on_mesh`.
export function selector(ranks, names, sizes) {
  const chosen = [...new Set(ranks)].sort((a, b) => a - b);
  const count = sizes.reduce((product, size) => product * size, 1);
  if (!chosen.length) return "";
  if (chosen.length === count) return "all";
  const kept = sizes.map((_, i) => [...new Set(chosen.map((rank) => coordinates(rank, sizes)[i]))].sort((a, b) => a - b));
  const isBox = kept.reduce((product, each) => product * each.length, 1) === chosen.length;
  if (!isBox || names.length === 1) return `rank=${indexText(chosen)}`;
  return names.map((name, i) => (kept[i].length === sizes[i] ? "" : `${name}=${indexText(kept[i], sizes[i])}`))
    .filter(Boolean).join(",");
}

function indexText(indices, size = 0) {
  const first = indices[0];
  const last = indices[indices.length - 1];
  if (indices.length === 1) return `${first}`;
  if (last - first + 1 !== indices.length) return `(${indices.join(",")})`;
  return `${first || ""}:${last + 1 === size ? "" : last + 1}`;
}

// The ranks whose places lie in the rectangle between two of them.
export function rectangle(places, from, to) {
  const [left, right] = [places[from][0], places[to][0]].sort((a, b) => a - b);
  const [top, bottom] = [places[from][1], places[to][1]].sort((a, b) => a - b);
  return places.flatMap(([x, y], rank) => (x >= left && x <= right && y >= top && y <= bottom ? [rank] : []));
}

// The rank one step away; the same one at the edge.
export function neighbour(places, rank, key) {
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  if (key === "Home") return 0;
  if (key === "End") return places.length - 1;
  const [dx, dy] = steps[key];
  for (const distance of [1, 2]) { // over the gap between blocks
    const found = places.findIndex(([x, y]) => x === places[rank][0] + dx * distance && y === places[rank][1] + dy * distance);
    if (found >= 0) return found;
  }
  return rank;
}

// Least and greatest of the finite values, for a scale.
export function range(values) {
  const good = values.filter((value) => value !== null && Number.isFinite(value));
  return good.length ? [Math.min(...good), Math.max(...good)] : [0, 0];
}

export function shade(value, [low, high]) {
  const share = high > low ? (Math.min(Math.max(value, low), high) - low) / (high - low) : 0.5;
  const at = share * (CIVIDIS.length - 1);
  const [from, to] = [CIVIDIS[Math.floor(at)], CIVIDIS[Math.ceil(at)]];
  return `rgb(${from.map((part, i) => Math.round(part + (to[i] - part) * (at % 1))).join(",")})`;
}

export function bytesText(count) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let place = 0;
  while (count >= 1024 && place < units.length - 1) { count /= 1024; place++; }
  return `${count >= 100 || place === 0 ? Math.round(count) : count.toFixed(1)} ${units[place]}`;
}

export function numberText(value) {
  return Number.isFinite(value) ? `${Number(value.toPrecision(4))}` : String(value);
}

// What one rank is, in words, for the line that is read aloud and for the tooltip.
export function rankText(rank, facts, names, sizes) {
  const at = coordinates(rank, sizes).map((index, i) => `${names[i]}=${index}`).join(", ");
  return `rank ${rank}${names.length > 1 || names[0] !== "rank" ? `, ${at}` : ""}, ${facts ? facts.state : "unknown"}`;
}

export const bytes = (buffer) => (buffer.buffer ? new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength) : new DataView(buffer));

export function floats(buffer) {
  const view = bytes(buffer);
  return Array.from({ length: view.byteLength / 4 }, (_, i) => view.getFloat32(i * 4, true));
}

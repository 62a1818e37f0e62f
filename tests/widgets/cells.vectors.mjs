// The pure half of the dashboard's script; `vectors.json` has frames that Python has packed (test_dashboard_script.py).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import {
  applyDelta, axesText, bytesText, decode, floats, layout, neighbour, range, rankText, rectangle, selector, shade,
} from "./cells.mjs";

const vectors = JSON.parse(readFileSync(new URL("./vectors.json", import.meta.url)));
const view = (bytes) => new DataView(Uint8Array.from(bytes).buffer);
const fields = (cell) => [cell.state, cell.progress, cell.cpu, cell.gpu, cell.memory, cell.gpuMemory, cell.metric];
const plain = (value) => (Number.isNaN(value) ? "nan" : value === Infinity ? "inf" : value);

test("a frame is read as Python reads it", () => {
  const ranks = decode(view(vectors.frame), vectors.states);
  assert.deepEqual(ranks.map((cell) => fields(cell).map(plain)), vectors.cells);
});

test("a delta changes just the ranks it names", () => {
  const ranks = decode(view(vectors.frame), vectors.states);
  assert.deepEqual(applyDelta(ranks, view(vectors.delta), vectors.states), [4]);
  assert.equal(ranks[4].state, "busy");
  assert.equal(ranks[5].state, "dead");
});

test("curves are read as floats, wherever their buffer begins", () => {
  assert.deepEqual(floats(Uint8Array.from(vectors.rows)), [1, 2, 3, 4]);
  const shifted = Uint8Array.from([0, ...vectors.rows]);
  assert.deepEqual(floats(new DataView(shifted.buffer, 1)), [1, 2, 3, 4]);
});

test("the innermost axis runs across", () => {
  const grid = layout([2, 4]);
  assert.deepEqual(grid.places.slice(3, 6), [[3, 0], [0, 1], [1, 1]]);
  assert.deepEqual([grid.columns, grid.rows], [4, 2]);
});

test("a high mesh stands in blocks side by side, and no two ranks share a place", () => {
  for (const sizes of [[256, 4], [1024], [16, 64], [8, 16, 8], [1], [3, 1], [2048, 2]]) {
    const grid = layout(sizes);
    const count = sizes.reduce((product, size) => product * size, 1);
    assert.equal(new Set(grid.places.map(String)).size, count);
    assert.ok(grid.columns * grid.cell < 900, `${sizes}: ${grid.columns} columns`);
    assert.ok(grid.places.every(([x, y]) => x < grid.columns && y < grid.rows));
  }
  assert.equal(layout([64], 8).rows, 8);
  assert.equal(layout([16, 64], 0, 470).cell, 7);
});

test("arrow keys walk over the gap between blocks and stop at the edge", () => {
  const { places, across, rows } = layout([256, 4]);
  assert.equal(neighbour(places, 3, "ArrowRight"), rows * across);
  assert.equal(neighbour(places, 0, "ArrowLeft"), 0);
  assert.equal(neighbour(places, 0, "ArrowDown"), across);
  assert.equal(neighbour(places, 5, "Home"), 0);
  assert.equal(neighbour(places, 5, "End"), places.length - 1);
});

test("a drag selects a rectangle", () => {
  const { places } = layout([4, 4]);
  assert.deepEqual(rectangle(places, 5, 10), [5, 6, 9, 10]);
  assert.deepEqual(rectangle(places, 10, 5), [5, 6, 9, 10]);
});

test("a selector is as short as it can be", () => {
  const pick = (ranks) => selector(ranks, ["dp", "tp"], [2, 4]);
  assert.equal(pick([1, 2]), "dp=0,tp=1:3");
  assert.equal(pick([2, 3, 6, 7]), "tp=2:");
  assert.equal(pick([1, 5]), "tp=1");
  assert.equal(pick([0, 5]), "rank=(0,5)");
  assert.equal(pick([]), "");
});

test("numbers have colours from dark to bright, and equal ones the middle", () => {
  assert.equal(shade(0, [0, 1]), "rgb(0,32,77)");
  assert.equal(shade(9, [0, 1]), "rgb(255,234,70)");
  assert.equal(shade(5, [5, 5]), "rgb(124,123,120)");
  assert.deepEqual(range([null, 3, NaN, 1]), [1, 3]);
  assert.deepEqual(range([null]), [0, 0]);
});

test("words", () => {
  assert.equal(axesText(["dp", "tp"], [2, 4]), "tp 0 … 3 →  dp 0 … 1 ↓");
  assert.equal(bytesText(61.2 * 1024 ** 3), "61.2 GB");
  assert.equal(rankText(5, { state: "busy" }, ["dp", "tp"], [2, 4]), "rank 5, dp=1, tp=1, busy");
  assert.equal(rankText(1, undefined, ["rank"], [4]), "rank 1, unknown");
});

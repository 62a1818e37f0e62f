// The pure functions of widgets/static/table.js: run by tests/widgets/test_scripts.py.
import assert from "node:assert/strict";
import test from "node:test";
import { amount, columnsOf, fits, gridOf, medianOf, placeOf, rowsOf, secondsText, sorted, tsv, windowOf } from "../../widgets/static/table.js";

const axes = [["dp", 2], ["tp", 3]];
const usual = { text: "tensor(1.)", facts: "float32 []", state: "ok", is_odd: false, is_number: true, has_more: false };
const failed = { text: "ValueError: nan", facts: "", state: "failed", is_odd: false, is_number: false, has_more: true };
const rows = rowsOf(
  { axes, ranks: [0, 1, 2, 3, 4, 5], groups: [usual, failed] },
  [[0, 0, 0, 0, 0, 1], [1, 2, 3, 4, NaN, NaN], [0.1, 0.2, 0.001, NaN, 12.34, 1]],
);

test("a rank has its place, the last axis running fastest", () => {
  assert.deepEqual([0, 2, 3, 5].map((rank) => placeOf(rank, axes)), [[0, 0], [0, 2], [1, 0], [1, 2]]);
});

test("a row knows how far it is from the median of what is finite", () => {
  assert.equal(medianOf([NaN, 1, 2, 3, 4]), 2.5);
  assert.deepEqual(rows.map((row) => row.away), [-1.5, -0.5, 0.5, 1.5, NaN, null]);
  assert.deepEqual([-1.5, 0, 0.123456, NaN, Infinity].map(amount), ["-1.5", "0", "+0.12", "nan", "inf"]);
});

test("times are said like everywhere", () => {
  assert.deepEqual([0.1, 0.001, 12.34, NaN].map(secondsText), ["0.10 s", "<0.01 s", "12.3 s", ""]);
});

test("sorting leaves what has nothing last, up and down", () => {
  const key = columnsOf(axes, rows).find((column) => column.name === "Δ to median").key;
  assert.deepEqual(sorted(rows, key, false).map((row) => row.rank), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(sorted(rows, key, true).map((row) => row.rank), [3, 2, 1, 0, 4, 5]);
});

test("there is a column for what there is to say", () => {
  assert.deepEqual(columnsOf(axes, rows).map((column) => column.name), ["rank", "dp", "tp", "value", "Δ to median", "type", "time", "state"]);
  assert.deepEqual(columnsOf([["dp", 2]], [{ ...usual, facts: "", number: null }]).map((column) => column.name), ["rank", "value", "time"]);
});

test("a query names places on axes, and words", () => {
  const found = (query) => rows.filter((row) => fits(row, query, axes)).map((row) => row.rank);
  assert.deepEqual(found("dp=1"), [3, 4, 5]);
  assert.deepEqual(found("tp=0-1 TENSOR"), [0, 1, 3, 4]);
  assert.deepEqual(found("rank=5"), [5]);
  assert.deepEqual(found("failed"), [5]);
  assert.deepEqual(found(""), [0, 1, 2, 3, 4, 5]);
});

test("the grid has the mesh's last axis across, and wraps a single one", () => {
  assert.deepEqual(gridOf(axes), { columns: 3, lines: 2 });
  assert.deepEqual(gridOf([["rank", 4]]), { columns: 4, lines: 1 });
  const { columns, lines } = gridOf([["rank", 1024]]);
  assert.ok(columns * lines >= 1024 && columns < 64);
});

test("only what is in sight is drawn, with some to spare", () => {
  assert.deepEqual(windowOf(0, 5), [0, 5]);
  const [first, last] = windowOf(26 * 500, 1024);
  assert.ok(first < 500 && last > 514 && last - first < 60);
  assert.deepEqual(windowOf(26 * 1024, 1024)[1], 1024);
});

test("a copy has a heading and a line a row", () => {
  const [head, first] = tsv(columnsOf(axes, rows), rows).split("\n");
  assert.equal(head, "rank\tdp\ttp\tvalue\tΔ to median\ttype\ttime\tstate");
  assert.equal(first, "0\t0\t0\ttensor(1.)\t-1.5\tfloat32 []\t0.10 s\tok");
});

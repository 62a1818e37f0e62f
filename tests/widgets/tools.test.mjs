// The pure functions of widgets/static/tools.js: run by tests/widgets/test_scripts.py.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

const source = readFileSync(new URL("../../widgets/static/tools.js", import.meta.url), "utf8");
const { compare, covers, fits, flat, tsv } = new Function(`${source}; return { compare, covers, fits, flat, tsv };`)();

test("numbers are sorted by size, texts by letters, and nothing stands last", () => {
  assert.deepEqual(["10", "9", "", "-1", "1e3"].sort(compare), ["-1", "9", "10", "1e3", ""]);
  assert.deepEqual(["b", "a10", "a2"].sort(compare), ["a10", "a2", "b"]);
});

test("an index is found in runs, in several lines too", () => {
  assert.deepEqual([0, 3, 4, 7].map((index) => covers("0-3,7", index)), [true, true, false, true]);
  assert.ok(covers("0<br>2-5", 4) && !covers("0<br>2-5", 1));
  assert.ok(!covers("10-12", 1) && !covers("", 0));
});

test("a row fits a query when it fits each of its words", () => {
  const axes = { dp: "0-1", tp: "3" };
  assert.ok(fits("", "anything", axes) && fits("TENSOR dp=1", "tensor(1.)", axes));
  assert.ok(!fits("dp=2", "tensor(1.)", axes) && !fits("dp=1 nan", "tensor(1.)", axes));
  assert.ok(fits("lr=3", "lr=3 is no axis", axes));
});

test("a cell is one field of a line", () => {
  assert.equal(tsv([["a", "b"], [flat(" 1\t2\n 3 "), "4"]]), "a\tb\n1 2 3\t4");
});

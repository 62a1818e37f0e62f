import assert from "node:assert/strict";
import test from "node:test";
import { shared, wordBefore } from "../../widgets/static/words.js";

test("the dotted word before the cursor", () => {
  assert.equal(wordBefore("p mod.li + 1", 8), "mod.li");
  assert.equal(wordBefore("p größe", 7), "größe");
  assert.equal(wordBefore("p (", 3), "");
});

test("what words share", () => {
  assert.equal(shared(["bit_count", "bit_length"]), "bit_");
  assert.equal(shared(["one"]), "one");
  assert.equal(shared([]), "");
});

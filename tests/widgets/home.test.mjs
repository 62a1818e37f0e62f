import assert from "node:assert/strict";
import { test } from "node:test";
import { makeHome } from "../../widgets/static/home.js";

// As much of an element as is needed.
const element = (isConnected = true) => ({
  isConnected,
  localName: "meshbook-live",
  children: [{ hidden: false }],
  append(host) { this.host = host; },
});

const viewsIn = (log) => () => {
  const number = log.length;
  log.push("drawn");
  return { host: { remove() { log[number] += " removed"; } }, end() { log[number] += " ended"; } };
};

test("a view is drawn over the twin, once", () => {
  const log = [], twin = element(), home = makeHome(viewsIn(log), () => false);
  home.enter(twin);
  home.enter(twin);
  assert.deepEqual(log, ["drawn"]);
  assert.equal(twin.children[0].hidden, true);
});

test("a twin that is drawn again takes the view over as it is; two twins have a view each", () => {
  const log = [], former = element(), home = makeHome(viewsIn(log), () => false);
  home.enter(former);
  former.isConnected = false;
  const next = element();
  home.enter(next);
  assert.deepEqual(log, ["drawn"]);
  assert.equal(next.host, former.host);
  home.enter(element());
  assert.deepEqual(log, ["drawn", "drawn"]);
});

test("what a front-end has drawn moves into the first twin, and the front-end cannot end it any more", () => {
  const log = [], own = element(), twin = element(), home = makeHome(viewsIn(log), () => false);
  own.localName = "div";
  const end = home.lodge(own);
  assert.equal(home.isAtRest, false); // there is no twin to bring up to date
  own.isConnected = false;
  home.enter(twin);
  end();
  assert.deepEqual(log, ["drawn"]);
  assert.equal(twin.host, own.host);
});

test("where there is no twin the front-end ends what it has drawn", () => {
  const log = [], home = makeHome(viewsIn(log), () => false);
  home.lodge(element())();
  assert.deepEqual(log, ["drawn ended"]);
});

test("a twin is brought up to date while nobody uses its view", () => {
  let isUsed = false;
  const twin = element(), home = makeHome(viewsIn([]), () => isUsed);
  assert.equal(home.isAtRest, false);
  home.enter(twin);
  assert.equal(home.isAtRest, true);
  isUsed = true;
  assert.equal(home.isAtRest, false);
  isUsed = twin.isConnected = false;
  assert.equal(home.isAtRest, false);
});

test("a view ends when its element stays away, and not when it only moves", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const log = [], twin = element(), home = makeHome(viewsIn(log), () => false);
  home.enter(twin);
  home.leave(twin);
  context.mock.timers.tick(60_000);
  assert.deepEqual(log, ["drawn"]);
  twin.isConnected = false;
  home.leave(twin);
  context.mock.timers.tick(60_000);
  assert.deepEqual(log, ["drawn ended"]);
});

test("when the model is gone the twins are there again", () => {
  const log = [], twin = element(), home = makeHome(viewsIn(log), () => false);
  home.enter(twin);
  home.close();
  assert.deepEqual(log, ["drawn ended removed"]);
  assert.equal(twin.children[0].hidden, false);
});

// Where a live widget dwells: in its static twin, which is what the notebook's file keeps. A saved view of a widget is
// "model not found" in the next kernel; the twin stands in an element of our own, over which the view is drawn while
// its model lives. So the page shows the one or the other, and the file always reads.

const ELEMENT = "meshbook-live";
const KEEP = 20_000; // milliseconds between two requests to bring the twin up to date
const AWAY = 60_000; // after which a view that was taken off the page ends: front-ends take off what is scrolled away

export const GONE = "the kernel has ended, or was restarted; this is the last state";

// Say something to the kernel; false where it has ended or was restarted: then JupyterLab throws.
export function tell(model, message) {
  try { model.send(message); } catch { return false; }
  return true;
}

// One class for all scripts of a page: an element knows by its id whose twin it holds.
function homes() {
  globalThis.meshbookHomes ??= new Map();
  if (!customElements.get(ELEMENT)) {
    customElements.define(ELEMENT, class extends HTMLElement {
      connectedCallback() { globalThis.meshbookHomes.get(this.dataset.home)?.enter(this); }
      disconnectedCallback() { globalThis.meshbookHomes.get(this.dataset.home)?.leave(this); }
    });
  }
  return globalThis.meshbookHomes;
}

export function makeHome(draw, isInUse) {
  const views = new Map(); // by element: where its view is drawn, and how it ends
  const end = (element) => {
    views.get(element)?.end();
    views.delete(element);
  };
  const isThere = (element) => element.isConnected && element.localName === ELEMENT;
  return {
    // The view stands where the front-end has put it, until a twin comes. Gives what ends it.
    lodge(element) {
      const view = draw();
      views.set(element, view);
      element.append(view.host);
      return () => end(element);
    },
    // A twin on the page: the view that stood elsewhere, or in a former twin, moves into it as it is.
    enter(element) {
      if (views.has(element)) return;
      const former = [...views.keys()].find((each) => !each.isConnected);
      const view = views.get(former) ?? draw();
      views.delete(former);
      views.set(element, view);
      for (const each of element.children) each.hidden = true;
      element.append(view.host);
    },
    leave(element) {
      setTimeout(() => { if (!element.isConnected) end(element); }, AWAY);
    },
    // The model is gone: the twins are what is left.
    close() {
      for (const [element, { host }] of views) {
        end(element);
        host.remove();
        for (const each of element.children) each.hidden = false;
      }
    },
    get isAtRest() {
      const twins = [...views.keys()].filter(isThere);
      return twins.length > 0 && !twins.some(isInUse);
    },
  };
}

// A widget that can move into its twin. Where a view stands in the output area of a notebook whose page makes models
// without being shown a view of them (JupyterLab, Notebook 7), it asks for that; elsewhere it stays as it is.
export function withHome(widget) {
  return {
    initialize(context) {
      const { model } = context;
      const done = widget.initialize?.(context);
      const id = model.get("home");
      const home = makeHome(() => {
        const host = document.createElement("div");
        const end = widget.render({ ...context, el: host });
        return { host, end: () => end?.() };
      }, (element) => element.contains(document.activeElement) || element.matches(":hover"));
      homes().set(id, home);
      for (const element of document.querySelectorAll(`${ELEMENT}[data-home="${id}"]`)) home.enter(element);
      const keep = setInterval(() => { if (!document.hidden && home.isAtRest) tell(model, { kind: "keep" }); }, KEEP);
      return () => { clearInterval(keep); homes().delete(id); home.close(); done?.(); };
    },
    render({ model, el }) {
      const end = homes().get(model.get("home")).lodge(el);
      const asks = setInterval(() => {
        if (!el.isConnected) return;
        clearInterval(asks);
        if (el.closest(".jp-OutputArea")) tell(model, { kind: "keep" });
      }, 100);
      return () => { clearInterval(asks); end(); };
    },
  };
}

// Time, chance and dialogs, under the driver's control. Runs before any script of the page.
//
// A page sees a clock that stands still until the driver moves it, a Math.random that is the same on every load
// (until the task seeds its own), and no blocking dialog. What the page registers here is what the driver replays.
const EPOCH = Date.UTC(2024, 0, 15, 12, 0, 0); // later than every date the tasks use, as for any reader today
const FRAME_MS = 50; // animation frames come at 20 a second: enough for any end state, and cheap
const CALLBACKS_PER_TICK = 20000; // a bound against timers that re-arm themselves without delay

const native = {
  Date: window.Date,
  setTimeout: window.setTimeout.bind(window),
  fetch: window.fetch.bind(window),
  stringify: JSON.stringify,
};

const clock = { now: 0, nextId: 1, timers: new Map() };

const schedule = (callback, delay, repeat, args) => {
  const id = clock.nextId++;
  const wait = Math.min(Math.max(Number(delay) || 0, repeat ? 4 : 0), 2 ** 40);
  clock.timers.set(id, { callback, at: clock.now + wait, every: repeat ? wait : 0, args });
  return id;
};
const cancel = (id) => { clock.timers.delete(Number(id)); };

window.setTimeout = (callback, delay, ...args) => schedule(callback, delay, false, args);
window.setInterval = (callback, delay, ...args) => schedule(callback, delay, true, args);
window.clearTimeout = cancel;
window.clearInterval = cancel;
window.requestAnimationFrame = (callback) => {
  const at = (Math.floor(clock.now / FRAME_MS) + 1) * FRAME_MS;
  return schedule(() => callback(at), at - clock.now, false, []);
};
window.cancelAnimationFrame = cancel;
window.requestIdleCallback = (callback) =>
  schedule(() => callback({ didTimeout: false, timeRemaining: () => 10 }), 1, false, []);
window.cancelIdleCallback = cancel;
window.performance.now = () => clock.now;

class FakeDate extends native.Date {
  constructor(...args) {
    if (args.length) super(...args);
    else super(EPOCH + clock.now);
  }
  static now() { return EPOCH + clock.now; }
}
window.Date = new Proxy(FakeDate, { apply: () => new FakeDate().toString() });
FakeDate.prototype.constructor = window.Date;

// Run everything that falls due in the next `milliseconds`, in order of time, then of registration.
H.tick = (milliseconds) => {
  const end = clock.now + milliseconds;
  for (let left = CALLBACKS_PER_TICK; left > 0; left--) {
    let dueId = 0, due = null;
    for (const [id, timer] of clock.timers) {
      if (timer.at <= end && (!due || timer.at < due.at)) { dueId = id; due = timer; }
    }
    if (!due) break;
    clock.now = Math.max(clock.now, due.at);
    if (due.every) {
      // Delete and set again: a Map keeps insertion order, which breaks ties between equal times.
      clock.timers.delete(dueId);
      clock.timers.set(dueId, { ...due, at: clock.now + due.every });
    } else {
      clock.timers.delete(dueId);
    }
    try {
      if (typeof due.callback === "function") due.callback.apply(window, due.args);
      else (0, eval)(String(due.callback)); // the page's own string timer
    } catch (error) { /* an error in a page's timer is the page's affair, as in any browser */ }
  }
  clock.now = end;
};

H.clockState = () => ({ now: clock.now, nextId: clock.nextId, timers: new Map(clock.timers) });
H.restoreClock = (state) => {
  clock.now = state.now;
  clock.nextId = state.nextId;
  clock.timers = new Map(state.timers);
};
// A little real time, for images to decode.
H.realPause = (milliseconds) => new Promise((resolve) => native.setTimeout(resolve, milliseconds));
H.stringify = native.stringify;

// Before the task seeds it, chance is a fixed linear congruential sequence (Numerical Recipes constants).
let chance = 12345;
const fixedRandom = () => {
  chance = (Math.imul(chance, 1664525) + 1013904223) >>> 0;
  return chance / 4294967296;
};
H.restoreChance = () => {
  chance = 12345;
  Math.random = fixedRandom;
};
H.restoreChance();

window.alert = () => undefined;
window.confirm = () => false;
window.prompt = () => null;
window.open = () => null;
window.print = () => undefined;

// Which nodes listen for a mouse: what makes a <div> a button.
const MOUSE_EVENTS = new Set(["click", "dblclick", "mousedown", "mouseup", "pointerdown", "pointerup"]);
const listeners = new WeakMap();
const addListener = EventTarget.prototype.addEventListener;
const removeListener = EventTarget.prototype.removeEventListener;
// What is added to the window, the document and the root element, so that it can be taken off again.
H.rootListeners = [];
EventTarget.prototype.addEventListener = function (type, listener, options) {
  if (this === undefined || this === window || this === document || this === document.documentElement) {
    H.rootListeners.push([this ?? window, type, listener, options]);
  }
  if (MOUSE_EVENTS.has(type) && listener && this) {
    let byType = listeners.get(this);
    if (!byType) listeners.set(this, (byType = new Map()));
    if (!byType.has(type)) byType.set(type, new Set());
    byType.get(type).add(listener);
  }
  return addListener.call(this ?? window, type, listener, options);
};
EventTarget.prototype.removeEventListener = function (type, listener, options) {
  const ofType = this && listeners.get(this)?.get(type);
  if (ofType) ofType.delete(listener);
  return removeListener.call(this ?? window, type, listener, options);
};
H.listensFor = (node, type) => Boolean(node["on" + type]) || Boolean(listeners.get(node)?.get(type)?.size);

// The page is a kiosk: a link or a form that would leave it does nothing. Registered first on the window's bubble
// phase, so it sees the page's own decision when that is made below the window.
addListener.call(window, "click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!link || event.defaultPrevented) return;
  const href = link.getAttribute("href").trim();
  if (!href.startsWith("#") && !/^javascript:/i.test(href)) event.preventDefault();
});
addListener.call(window, "submit", (event) => event.preventDefault());

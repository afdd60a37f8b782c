// The mouse and the focus: what a hand does, as the events that the page would get.
//
// Chromium ignores trusted input in begin-frame mode, so events are dispatched from here, in the browser's order, and
// what the browser would have refused is refused: a covered or disabled element, a press that the page prevents.
const OUTCOME = { ok: "ok", unknown: "unknown target", ambiguous: "ambiguous", occluded: "occluded",
  disabled: "disabled", unsupported: "unsupported", malformed: "malformed" };

const hand = { over: null, clipboard: "", edited: null, before: "" };
H.resetHand = () => {
  hand.over = null; hand.clipboard = ""; hand.edited = null; hand.before = "";
};

const fire = (target, event) => target.dispatchEvent(event);
const mouse = (target, type, at, extra = {}) => {
  const bubbles = type !== "mouseenter" && type !== "mouseleave" && type !== "pointerenter" && type !== "pointerleave";
  const Kind = type.startsWith("pointer") ? PointerEvent : MouseEvent;
  return fire(target, new Kind(type, { bubbles, cancelable: bubbles, composed: true, view: window, clientX: at.x, clientY: at.y,
    screenX: at.x, screenY: at.y, button: 0, detail: 1, ...(Kind === PointerEvent ? { isPrimary: true, pointerId: 1, pointerType: "mouse" } : {}), ...extra }));
};

const ancestors = (node) => {
  const chain = [];
  for (; node instanceof Element; node = node.parentElement) chain.push(node);
  return chain;
};

const moveTo = (target, at) => {
  const old = hand.over?.isConnected ? hand.over : null;
  if (old !== target) {
    const left = old ? ancestors(old) : [], entered = ancestors(target);
    if (old) {
      mouse(old, "pointerout", at, { relatedTarget: target });
      mouse(old, "mouseout", at, { relatedTarget: target });
      for (const node of left) if (!entered.includes(node)) mouse(node, "mouseleave", at, { relatedTarget: target });
    }
    mouse(target, "pointerover", at, { relatedTarget: old });
    mouse(target, "mouseover", at, { relatedTarget: old });
    for (const node of entered.reverse()) if (!left.includes(node)) mouse(node, "mouseenter", at, { relatedTarget: old });
    hand.over = target;
  }
  mouse(target, "pointermove", at);
  mouse(target, "mousemove", at);
};

const commit = (element) => {
  if (hand.edited !== element) return;
  hand.edited = null;
  if (element.value !== hand.before) fire(element, new Event("change", { bubbles: true }));
};
const markEdited = (element) => {
  if (hand.edited === element) return;
  hand.edited = element;
  hand.before = element.value;
};

const focusable = (node) => ancestors(node).find((element) =>
  element.matches("input, select, textarea, button, a[href], [tabindex], [contenteditable=''], [contenteditable=true], area[href], summary, label")
  && !element.matches(":disabled")) ?? null;

// What is disabled or hidden cannot keep the focus. A browser takes it away, without an event, when it next draws a
// frame, whenever that is; here it goes at once, or equal actions would end in states that differ by their timing.
const silence = (event) => event.stopImmediatePropagation();
H.releaseFocus = () => {
  const active = document.activeElement;
  if (!active || active === document.body) return;
  const shown = active.getClientRects().length > 0 && getComputedStyle(active).visibility === "visible";
  if (shown && !active.matches(":disabled")) return;
  for (const name of ["blur", "focusout"]) window.addEventListener(name, silence, true);
  active.blur?.();
  for (const name of ["blur", "focusout"]) window.removeEventListener(name, silence, true);
};

const moveFocus = (node) => {
  const target = focusable(node);
  const active = document.activeElement;
  if (target === active) return;
  if (active && active !== document.body) { commit(active); active.blur?.(); }
  if (target && target.tagName !== "LABEL") target.focus({ preventScroll: true });
};

const scrollers = (node) => ancestors(node).filter((element) =>
  element.scrollHeight > element.clientHeight || element.scrollWidth > element.clientWidth);

// Bring an element into view, and tell its scrollers, whose own events wait for a frame that never comes.
const reveal = (node) => {
  const boxes = scrollers(node);
  const before = boxes.map((box) => [box.scrollTop, box.scrollLeft]);
  node.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
  boxes.forEach((box, index) => {
    if (box.scrollTop !== before[index][0] || box.scrollLeft !== before[index][1]) announceScroll(box);
  });
};
const announceScroll = (box) => {
  const root = box === document.documentElement || box === document.body;
  fire(root ? document : box, new Event("scroll", { bubbles: root }));
};

const boxOf = (record) => {
  if (record.text?.isConnected) {
    const range = document.createRange();
    range.selectNodeContents(record.text);
    for (const rect of range.getClientRects()) if (rect.width > 0 && rect.height > 0) return rect;
  }
  const rects = record.node.getClientRects();
  for (const rect of rects) if (rect.width > 0 && rect.height > 0) return rect;
  return record.node.getBoundingClientRect();
};
H.boxOf = (record) => {
  const rect = (record.text && !record.interactive ? boxOf(record) : record.node.getBoundingClientRect());
  return [rect.left, rect.top, rect.width, rect.height];
};

const POINTS = [[0.5, 0.5], [0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75], [0.1, 0.5], [0.9, 0.5], [0.5, 0.1], [0.5, 0.9]];

// A point where a click reaches the element: its centre, else another visible part; null when it is covered.
const reachable = (record) => {
  const { node } = record;
  const labels = node.labels ? [...node.labels] : [];
  for (const box of record.text ? [boxOf(record), node.getBoundingClientRect()] : [boxOf(record)]) {
    for (const [across, down] of POINTS) {
      const at = { x: box.left + box.width * across, y: box.top + box.height * down };
      const hit = document.elementFromPoint(at.x, at.y);
      if (!hit) continue;
      if (hit === node || node.contains(hit)) {
        // Another element of the list inside this one takes the click for itself.
        const inner = H.records.find((other) => other !== record && other.interactive && other.node !== node
          && node.contains(other.node) && other.node.contains(hit));
        if (!inner || !record.interactive) return { at, hit };
      } else if (labels.some((label) => label.contains(hit)) || record.text && !record.interactive && hit.contains(node)) {
        return { at, hit };
      }
    }
  }
  return null;
};

const prepare = (record) => {
  if (!record.node.isConnected) return { outcome: OUTCOME.unknown };
  reveal(record.node);
  const point = reachable(record);
  if (!point) return { outcome: OUTCOME.occluded };
  if (record.node.matches(":disabled")) return { outcome: OUTCOME.disabled };
  return { point };
};

const press = ({ at, hit }) => {
  moveTo(hit, at);
  mouse(hit, "pointerdown", at, { buttons: 1 });
  const native = mouse(hit, "mousedown", at, { buttons: 1 });
  if (native) {
    moveFocus(hit);
    if (!/^(INPUT|TEXTAREA)$/.test(hit.tagName)) document.getSelection()?.removeAllRanges();
  }
  mouse(hit, "pointerup", at);
  mouse(hit, "mouseup", at);
  if (hit.isConnected) mouse(hit, "click", at);
};

const click = (record) => {
  const { outcome, point } = prepare(record);
  if (outcome) return outcome;
  press(point);
  return OUTCOME.ok;
};

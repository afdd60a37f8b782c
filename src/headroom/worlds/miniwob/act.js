// Actions as a person's hand would make them: events from the page's side, in the browser's order.
//
// Chromium ignores trusted input in begin-frame mode, so events are dispatched here, and what the browser would have
// refused is refused here: a covered, disabled or read-only element, a key that the page prevents.
const OUTCOME = { ok: "ok", unknown: "unknown target", ambiguous: "ambiguous", occluded: "occluded",
  disabled: "disabled", unsupported: "unsupported", malformed: "malformed" };
const TYPED_INPUTS = new Set(["text", "password", "email", "search", "tel", "url", "number"]);
const PICKED_INPUTS = new Set(["date", "time", "month", "week", "datetime-local", "color", "range"]);
const KEYS = { enter: ["Enter", 13], return: ["Enter", 13], tab: ["Tab", 9], escape: ["Escape", 27], esc: ["Escape", 27],
  backspace: ["Backspace", 8], delete: ["Delete", 46], space: [" ", 32], arrowup: ["ArrowUp", 38], up: ["ArrowUp", 38],
  arrowdown: ["ArrowDown", 40], down: ["ArrowDown", 40], arrowleft: ["ArrowLeft", 37], left: ["ArrowLeft", 37],
  arrowright: ["ArrowRight", 39], right: ["ArrowRight", 39], home: ["Home", 36], end: ["End", 35],
  pageup: ["PageUp", 33], pagedown: ["PageDown", 34] };
const MODIFIERS = { control: "ctrlKey", ctrl: "ctrlKey", shift: "shiftKey", alt: "altKey", meta: "metaKey" };

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

const setValue = (element, value) => {
  const prototype = element.tagName === "TEXTAREA" ? HTMLTextAreaElement.prototype : HTMLInputElement.prototype;
  Object.getOwnPropertyDescriptor(prototype, "value").set.call(element, value);
};

const isEditable = (element) => element.tagName === "TEXTAREA" || element.tagName === "INPUT" && TYPED_INPUTS.has(element.type);
const selection = (element) => {
  const start = element.selectionStart, end = element.selectionEnd;
  // Number and email fields have no selection interface: the whole value counts as selected after a fill's select-all.
  if (start === null || start === undefined) return hand.all === element ? [0, element.value.length] : [element.value.length, element.value.length];
  return [start, end];
};

// Replace the selection (or `before`/`after` characters around the caret) as typing would.
const insert = (element, text, inputType, before = 0, after = 0) => {
  if (element.readOnly) return;
  if (!fire(element, new InputEvent("beforeinput", { bubbles: true, cancelable: true, data: text || null, inputType }))) return;
  markEdited(element);
  let [start, end] = selection(element);
  if (start === end) { start = Math.max(0, start - before); end = Math.min(element.value.length, end + after); }
  const room = element.maxLength >= 0 ? element.maxLength - (element.value.length - (end - start)) : Infinity;
  const typed = text.slice(0, Math.max(0, room));
  if (element.type === "number") {
    // A number field holds a half-typed number that its value does not show; a person types on from there.
    const draft = (hand.draftOf === element && hand.all !== element ? hand.draft : hand.all === element ? "" : element.value) + typed;
    hand.draftOf = element; hand.draft = text === "" ? draft.slice(0, -before || undefined) : draft;
    setValue(element, hand.draft);
  } else {
    setValue(element, element.value.slice(0, start) + typed + element.value.slice(end));
    if (element.selectionStart !== null) element.setSelectionRange(start + typed.length, start + typed.length);
  }
  hand.all = null;
  fire(element, new InputEvent("input", { bubbles: true, data: text || null, inputType }));
};

const codeOf = (character) => {
  const upper = character.toUpperCase();
  return /^[A-Z0-9 ]$/.test(upper) ? upper.charCodeAt(0) : 0;
};
const keyEvent = (target, type, key, code, flags = {}) =>
  fire(target, new KeyboardEvent(type, { bubbles: true, cancelable: true, composed: true, view: window, key,
    keyCode: code, which: code, ...flags, ...(type === "keypress" ? { charCode: code } : {}) }));

const typeCharacter = (element, character) => {
  const newline = character === "\n";
  const key = newline ? "Enter" : character, code = newline ? 13 : codeOf(character);
  if (newline && element.tagName !== "TEXTAREA") return;
  if (keyEvent(element, "keydown", key, code) && keyEvent(element, "keypress", key, newline ? 13 : character.codePointAt(0))) {
    insert(document.activeElement === element ? element : element, character, newline ? "insertLineBreak" : "insertText");
  }
  keyEvent(element, "keyup", key, code);
};

const PICKERS = {
  date: (text) => {
    const us = /^(\d{1,2})\/(\d{1,2})\/(\d{4})$/.exec(text);
    return us ? `${us[3]}-${us[1].padStart(2, "0")}-${us[2].padStart(2, "0")}` : text;
  },
  time: (text) => {
    const clock12 = /^(\d{1,2}):(\d{2})\s*([ap])\.?m\.?$/i.exec(text);
    if (!clock12) return text.replace(/^(\d):/, "0$1:");
    const hour = Number(clock12[1]) % 12 + (clock12[3].toLowerCase() === "p" ? 12 : 0);
    return `${String(hour).padStart(2, "0")}:${clock12[2]}`;
  },
};

const fill = (record, text) => {
  const element = record.node;
  const rich = element.isContentEditable;
  const picked = element.tagName === "INPUT" && PICKED_INPUTS.has(element.type);
  if (!isEditable(element) && !picked && !rich) return OUTCOME.unsupported;
  const { outcome, point } = prepare(record);
  if (outcome) return outcome;
  if (element.readOnly) return OUTCOME.disabled;
  press(point);
  if (!element.isConnected) return OUTCOME.ok;
  if (document.activeElement !== element && !rich) return OUTCOME.ok; // the page refuses focus, so keys go elsewhere
  if (picked) {
    const value = (PICKERS[element.type] ?? ((same) => same))(text.trim());
    const probe = document.createElement("input");
    for (const name of ["type", "min", "max", "step"]) if (element.hasAttribute(name)) probe.setAttribute(name, element.getAttribute(name));
    probe.value = value;
    if (probe.value !== value && value !== "") return OUTCOME.unsupported;
    if (![...text].every((character) => keyEvent(element, "keydown", character, codeOf(character)))) return OUTCOME.ok;
    markEdited(element);
    setValue(element, value);
    fire(element, new InputEvent("input", { bubbles: true, inputType: "insertReplacementText" }));
    commit(element);
    return OUTCOME.ok;
  }
  if (rich) {
    document.getSelection().selectAllChildren(element);
    document.execCommand("insertText", false, text);
    return OUTCOME.ok;
  }
  if (element.selectionStart === null) hand.all = element; else element.select();
  if (text === "") return pressKey(element, "Backspace", 8, {});
  for (const character of text) typeCharacter(element, character);
  return OUTCOME.ok;
};

const select = (record, text) => {
  const element = record.node;
  if (element.tagName !== "SELECT") return OUTCOME.unsupported;
  const wanted = H.collapse(text);
  const option = [...element.options].find((candidate) => H.collapse(candidate.text) === wanted);
  if (!option) return OUTCOME.unsupported;
  const { outcome, point } = prepare(record);
  if (outcome) return outcome;
  if (option.matches(":disabled")) return OUTCOME.disabled;
  press(point);
  if (!element.isConnected) return OUTCOME.ok;
  const changed = element.multiple || !option.selected;
  option.selected = element.multiple ? !option.selected : true;
  if (changed) {
    fire(element, new Event("input", { bubbles: true }));
    fire(element, new Event("change", { bubbles: true }));
  }
  return OUTCOME.ok;
};

const tabOrder = () => [...document.querySelectorAll("input, select, textarea, button, a[href], [tabindex], [contenteditable=true]")]
  .filter((element) => element.tabIndex >= 0 && !element.matches(":disabled") && element.getClientRects().length && !element.closest("#reward-display"));

const defaultKey = (target, key, flags) => {
  const tag = target.tagName;
  if (flags.ctrlKey || flags.metaKey) return shortcut(target, key.toLowerCase());
  if (key === "Tab") {
    const order = tabOrder();
    const index = order.indexOf(target);
    const next = order[(index + (flags.shiftKey ? -1 + order.length : 1)) % order.length] ?? order[0];
    if (next) { moveFocus(next); if (isEditable(next) && next.selectionStart !== null) next.select(); }
  } else if (isEditable(target)) {
    if (key.length === 1) insert(target, key, "insertText");
    else if (key === "Backspace") insert(target, "", "deleteContentBackward", 1, 0);
    else if (key === "Delete") insert(target, "", "deleteContentForward", 0, 1);
    else if (key === "Enter" && tag === "TEXTAREA") insert(target, "\n", "insertLineBreak");
    else if (key === "Enter") { commit(target); submitFrom(target); }
    else moveCaret(target, key);
  } else if (target.isContentEditable) {
    if (key.length === 1) document.execCommand("insertText", false, key);
    else if (key === "Backspace") document.execCommand("delete");
    else if (key === "Enter") document.execCommand("insertParagraph");
  } else if (tag === "SELECT" && !target.multiple && /^Arrow(Up|Down)$|^Home$|^End$/.test(key)) {
    const last = target.options.length - 1;
    const index = { ArrowUp: target.selectedIndex - 1, ArrowDown: target.selectedIndex + 1, Home: 0, End: last }[key];
    if (index >= 0 && index <= last && index !== target.selectedIndex) {
      target.selectedIndex = index;
      fire(target, new Event("input", { bubbles: true }));
      fire(target, new Event("change", { bubbles: true }));
    }
  } else if (tag === "INPUT" && target.type === "radio" && key.startsWith("Arrow")) {
    const group = [...document.querySelectorAll("input[type=radio]")].filter((radio) => radio.name === target.name && radio.form === target.form && !radio.disabled);
    const step = key === "ArrowDown" || key === "ArrowRight" ? 1 : -1;
    const next = group[(group.indexOf(target) + step + group.length) % group.length];
    if (next && next !== target) { moveFocus(next); next.click(); }
  } else if (tag === "INPUT" && target.type === "range" && /^Arrow/.test(key)) {
    markEdited(target);
    if (key === "ArrowRight" || key === "ArrowUp") target.stepUp(); else target.stepDown();
    fire(target, new Event("input", { bubbles: true }));
    commit(target);
  } else if (key === "Enter" && tag === "INPUT") {
    submitFrom(target);
  } else if (key === "Enter" && (tag === "BUTTON" || tag === "A" && target.href)) {
    target.click();
  }
  return OUTCOME.ok;
};

const submitFrom = (element) => {
  const form = element.form;
  if (!form) return;
  const button = [...form.elements].find((candidate) => candidate.type === "submit");
  if (button) { if (!button.disabled) button.click(); return; }
  if (form.checkValidity()) fire(form, new SubmitEvent("submit", { bubbles: true, cancelable: true }));
};

const moveCaret = (element, key) => {
  if (element.selectionStart === null) {
    if (element.type === "number" && (key === "ArrowUp" || key === "ArrowDown")) {
      markEdited(element);
      if (key === "ArrowUp") element.stepUp(); else element.stepDown();
      fire(element, new Event("input", { bubbles: true }));
    }
    return;
  }
  const caret = { ArrowLeft: Math.max(0, element.selectionStart - 1), ArrowRight: element.selectionEnd + 1,
    Home: 0, End: element.value.length, ArrowUp: 0, ArrowDown: element.value.length }[key];
  if (caret !== undefined) element.setSelectionRange(caret, caret);
};

const shortcut = (target, key) => {
  const editable = isEditable(target) && target.selectionStart !== null;
  if (key === "a") {
    if (editable) target.select(); else document.getSelection().selectAllChildren(document.body);
  } else if (key === "c" || key === "x") {
    const text = editable ? target.value.slice(target.selectionStart, target.selectionEnd) : String(document.getSelection());
    if (!fire(target, new ClipboardEvent(key === "c" ? "copy" : "cut", { bubbles: true, cancelable: true }))) return OUTCOME.ok;
    if (text && !(editable && target.type === "password")) hand.clipboard = text;
    if (key === "x" && editable && text) insert(target, "", "deleteByCut");
  } else if (key === "v") {
    const data = new DataTransfer();
    data.setData("text/plain", hand.clipboard);
    if (!fire(target, new ClipboardEvent("paste", { bubbles: true, cancelable: true, clipboardData: data }))) return OUTCOME.ok;
    if (isEditable(target) && hand.clipboard) insert(target, target.tagName === "TEXTAREA" ? hand.clipboard : hand.clipboard.replace(/[\r\n]+/g, " "), "insertFromPaste");
  }
  return OUTCOME.ok;
};

const pressKey = (target, key, code, flags) => {
  const printable = key.length === 1 || key === "Enter";
  const allowed = keyEvent(target, "keydown", key, code, flags)
    && (!printable || flags.ctrlKey || flags.metaKey || keyEvent(target, "keypress", key, key.length === 1 ? key.codePointAt(0) : code, flags));
  const now = document.activeElement && document.activeElement !== document.body ? document.activeElement : target;
  if (allowed) defaultKey(now, key, flags);
  const after = document.activeElement ?? document.body;
  const up = keyEvent(after, "keyup", key, code, flags);
  const pressesButton = key === " " && !flags.ctrlKey && after === now
    && (after.tagName === "BUTTON" || after.tagName === "INPUT" && /^(checkbox|radio|button|submit|reset)$/.test(after.type));
  if (allowed && up && pressesButton && !after.disabled) after.click();
  return OUTCOME.ok;
};

const parseKey = (text) => {
  const parts = text.length > 1 ? text.split("+") : [text];
  const name = parts.pop();
  const flags = {};
  for (const part of parts) {
    const flag = MODIFIERS[part.trim().toLowerCase()];
    if (!flag) return null;
    flags[flag] = true;
  }
  const known = Object.hasOwn(KEYS, name.trim().toLowerCase()) && KEYS[name.trim().toLowerCase()];
  if (known) return { key: known[0], code: known[1], flags };
  if ([...name].length === 1) return { key: name, code: codeOf(name), flags };
  return null;
};

const pressOn = (record, text) => {
  const parsed = parseKey(text);
  if (!parsed) return OUTCOME.unsupported;
  let target = document.activeElement ?? document.body;
  if (record) {
    const field = focusable(record.node) ?? record.node;
    if (field !== target) {
      const { outcome, point } = prepare(record);
      if (outcome) return outcome;
      // A field is reached by a click into it; anything else by the keyboard, since a click would press it.
      if (isEditable(record.node)) press(point); else moveFocus(record.node);
    }
    target = document.activeElement ?? document.body;
  }
  return pressKey(target, parsed.key, parsed.code, parsed.flags);
};

const SCROLLS = { up: [0, -1], down: [0, 1], left: [-1, 0], right: [1, 0], top: [0, -Infinity], bottom: [0, Infinity] };
const scroll = (record, text) => {
  const direction = text.trim().toLowerCase();
  if (!Object.hasOwn(SCROLLS, direction)) return OUTCOME.unsupported;
  const [x, y] = SCROLLS[direction];
  const can = (box) => {
    const overflow = getComputedStyle(box)[x ? "overflowX" : "overflowY"];
    const room = x ? box.scrollWidth > box.clientWidth : box.scrollHeight > box.clientHeight;
    return room && (/auto|scroll/.test(overflow) || box === document.documentElement);
  };
  const box = record ? ancestors(record.node).find(can) : [...document.querySelectorAll("#area, #area *, html")].find(can);
  if (!box) return OUTCOME.unsupported;
  const far = Math.sign(x + y) * 1e6;
  const wheel = new WheelEvent("wheel", { bubbles: true, cancelable: true, deltaX: x ? Math.sign(x) * 100 : 0, deltaY: y ? Math.sign(y) * 100 : 0 });
  if (!fire(record ? record.node : box, wheel)) return OUTCOME.ok;
  const before = [box.scrollTop, box.scrollLeft];
  const step = (extent, sign) => (Math.abs(sign) === Infinity ? far : sign * Math.max(20, Math.round(extent * 0.8)));
  box.scrollBy({ top: y ? step(box.clientHeight, y) : 0, left: x ? step(box.clientWidth, x) : 0, behavior: "instant" });
  if (box.scrollTop !== before[0] || box.scrollLeft !== before[1]) announceScroll(box);
  return OUTCOME.ok;
};

const resolve = ({ role, name, occurrence }) => {
  const group = H.groups.get(`${role}\u0000${H.collapse(name)}`);
  if (!group) return { outcome: OUTCOME.unknown };
  if (!occurrence && group.length > 1) return { outcome: OUTCOME.ambiguous };
  const record = group[(occurrence || 1) - 1];
  return record ? { record } : { outcome: OUTCOME.unknown };
};

// Perform one action on the page as it stands and say what became of it.
H.act = (action) => {
  const { verb, text } = action;
  if (verb === "malformed") return OUTCOME.malformed;
  if (!["click", "fill", "select", "press", "scroll"].includes(verb)) return OUTCOME.malformed;
  H.records = H.observe();
  const targeted = action.role !== "" || action.name !== "";
  if (!targeted) {
    if (verb === "press") return pressOn(null, text);
    if (verb === "scroll") return scroll(null, text);
    return OUTCOME.unknown;
  }
  const { record, outcome } = resolve(action);
  if (outcome) return outcome;
  switch (verb) {
    case "click": return click(record);
    case "fill": return fill(record, text);
    case "select": return select(record, text);
    case "press": return pressOn(record, text);
    default: return scroll(record, text);
  }
};

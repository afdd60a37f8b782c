// The keyboard: keys with what a browser does by default for each, typing, copying and pasting.
const TYPED_INPUTS = new Set(["text", "password", "email", "search", "tel", "url", "number"]);
const KEYS = { enter: ["Enter", 13], return: ["Enter", 13], tab: ["Tab", 9], escape: ["Escape", 27], esc: ["Escape", 27],
  backspace: ["Backspace", 8], delete: ["Delete", 46], space: [" ", 32], arrowup: ["ArrowUp", 38], up: ["ArrowUp", 38],
  arrowdown: ["ArrowDown", 40], down: ["ArrowDown", 40], arrowleft: ["ArrowLeft", 37], left: ["ArrowLeft", 37],
  arrowright: ["ArrowRight", 39], right: ["ArrowRight", 39], home: ["Home", 36], end: ["End", 35],
  pageup: ["PageUp", 33], pagedown: ["PageDown", 34] };
const MODIFIERS = { control: "ctrlKey", ctrl: "ctrlKey", shift: "shiftKey", alt: "altKey", meta: "metaKey" };

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

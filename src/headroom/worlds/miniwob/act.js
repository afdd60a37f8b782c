// The verbs of an agent, each on one element of the list, and what becomes of them.
const PICKED_INPUTS = new Set(["date", "time", "month", "week", "datetime-local", "color", "range"]);
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

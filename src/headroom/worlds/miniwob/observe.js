// What a person sees on the page, as a list of elements with role, name, value and states.
//
// Roles and names follow ARIA and the accessible-name computation where the page gives them. Where it does not (a
// <span> with a click handler, an icon, a field with a caption beside it) they follow what a sighted user would say.
const MAX_ELEMENTS = 600;
const MAX_TEXT = 2000;
const SKIPPED_IDS = new Set(["query", "reward-display", "click-canvas", "sync-task-cover", "attention-canvas"]);
const SKIPPED_TAGS = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "META", "LINK", "DATALIST"]);
const FRAME_IDS = new Set(["wrap", "area"]);
const FIELD_ROLES = new Set(["textbox", "combobox", "listbox", "spinbutton", "slider", "checkbox", "radio"]);
// An element of these roles is one thing: what is inside only names it.
const ATOMIC_ROLES = new Set(["button", "link", "tab", "menuitem", "option", "switch", "menuitemcheckbox",
  "menuitemradio", ...FIELD_ROLES]);
const STATE_CLASSES = { active: "pressed", clicked: "pressed", pressed: "pressed", selected: "selected",
  "ui-selected": "selected", "ui-state-active": "selected", "ui-tabs-active": "selected",
  "ui-accordion-header-active": "selected", checked: "checked", highlighted: "selected",
  expandable: "collapsed", collapsable: "expanded", disabled: "disabled", "ui-state-disabled": "disabled" };
const ICON_NAMES = { "triangle-1-n": "up", "triangle-1-s": "down", "triangle-1-e": "right", "triangle-1-w": "left",
  closethick: "close", "circle-triangle-e": "next", "circle-triangle-w": "previous" };
const COLOURS = { "0,0,0": "black", "255,255,255": "white", "255,0,0": "red", "0,128,0": "green", "0,255,0": "lime",
  "0,0,255": "blue", "0,255,255": "aqua", "255,0,255": "magenta", "255,255,0": "yellow", "255,165,0": "orange",
  "128,128,128": "gray", "211,211,211": "lightgray", "255,192,203": "pink", "128,0,128": "purple",
  "165,42,42": "brown", "0,128,128": "teal", "128,0,0": "maroon", "0,0,128": "navy", "128,128,0": "olive",
  "192,192,192": "silver", "70,130,180": "steelblue", "173,216,230": "lightblue", "238,130,238": "violet" };

const collapse = (text) =>
  String(text ?? "").toWellFormed().replace(/[\s\u0000-\u001f\u007f-\u009f]+/g, " ").trim().slice(0, MAX_TEXT);
H.collapse = collapse;

const captionOf = (text) => collapse(text).replace(/\s*[:*]+$/, "");

const colourName = (css) => {
  const parts = /^rgba?\((\d+), ?(\d+), ?(\d+)(?:, ?([\d.]+))?\)$/.exec(css);
  if (!parts || parts[4] === "0") return "";
  return COLOURS[`${parts[1]},${parts[2]},${parts[3]}`] ?? `rgb(${parts[1]},${parts[2]},${parts[3]})`;
};

// The page's own word for a colour where it uses one ("grey", "cyan"), else the common word for what is computed.
const colourOf = (specified, computed) => /^[a-z]+$/.test(specified ?? "") && specified !== "none" && specified !== "transparent"
  ? specified : colourName(computed);

const inputRole = (element) => {
  switch (element.type) {
    case "button": case "submit": case "reset": case "image": case "file": case "color": return "button";
    case "checkbox": return "checkbox";
    case "radio": return "radio";
    case "range": return "slider";
    case "number": return "spinbutton";
    case "hidden": return "";
    default: return "textbox";
  }
};

// The role that the markup declares, or "" when only behaviour can tell.
const declaredRole = (element) => {
  const explicit = (element.getAttribute("role") ?? "").trim().split(/\s+/)[0];
  const tag = element.tagName;
  if (tag === "INPUT") return explicit === "slider" || explicit === "switch" ? explicit : inputRole(element);
  if (tag === "TEXTAREA") return "textbox";
  if (tag === "SELECT") return element.multiple || element.size > 1 ? "listbox" : "combobox";
  if (ATOMIC_ROLES.has(explicit) && explicit !== "listbox") return explicit;
  if (explicit === "treeitem") return explicit;
  if (tag === "BUTTON" || tag === "SUMMARY") return "button";
  if (element.classList.contains("ui-spinner-button")) return "button";
  if (tag === "A") return element.parentElement?.getAttribute("role") === "tab" ? "tab" : "link";
  if (element.isContentEditable && !element.parentElement?.isContentEditable) return "textbox";
  if (element.classList.contains("ui-slider-handle")) return "slider";
  return "";
};

const behaviouralRole = (element) => {
  if (/(^|[\s_-])a?link/i.test(element.getAttribute("class") ?? "")) return "link";
  switch (element.tagName) {
    case "LI": return element.parentElement?.closest("li, .filetree, .treeview") || element.querySelector("ul")
      ? "treeitem" : "option";
    case "TD": case "TH": return "cell";
    case "TR": return "row";
    case "IMG": return "img";
    default: return "button";
  }
};

const PRESS = ["click", "mouseup", "mousedown", "dblclick", "pointerup", "pointerdown"];
const listensForPress = (element) => PRESS.some((type) => H.listensFor(element, type));

const textOf = (element) =>
  getComputedStyle(element).fontSize === "0px" ? "" : collapse(element.innerText ?? element.textContent);

const iconName = (element) => {
  const nodes = [element, ...element.querySelectorAll("*")];
  for (const node of nodes) {
    for (const token of node.classList) {
      const icon = /^ui-icon-(.+)$/.exec(token);
      if (icon) return ICON_NAMES[icon[1]] ?? icon[1];
    }
  }
  const image = element.querySelector("img[alt]");
  if (image) return collapse(image.alt);
  if (element.style?.backgroundColor) {
    const colour = colourOf(element.style.backgroundColor, getComputedStyle(element).backgroundColor);
    if (colour) return colour;
  }
  const token = [...element.classList].find((name) => !(name in STATE_CLASSES) && !name.startsWith("ui-"));
  return collapse((token ?? element.id ?? "").replace(/[_-]+/g, " "));
};

const accessibleName = (element, role, usedLabels) => {
  const labelledBy = element.getAttribute("aria-labelledby");
  if (labelledBy && ATOMIC_ROLES.has(role) && role !== "tab") {
    const name = collapse(labelledBy.split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" "));
    if (name) return name;
  }
  const label = collapse(element.getAttribute("aria-label"));
  if (label) return label;
  if (element.labels?.length) {
    const name = collapse([...element.labels].map((node) => {
      usedLabels.add(node);
      return textWithoutFields(node);
    }).join(" "));
    if (name) return captionOf(name);
  }
  if (element.tagName === "INPUT" && role === "button") return collapse(element.value || element.alt || element.title);
  if (FIELD_ROLES.has(role)) return captionOf(element.placeholder || element.title);
  if (element.tagName === "IMG") return collapse(element.alt || element.title) || iconName(element);
  return textOf(element) || collapse(element.title) || iconName(element);
};

const textWithoutFields = (label) => {
  let text = "";
  for (const node of label.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) text += node.data;
    else if (node instanceof Element && !/^(INPUT|SELECT|TEXTAREA|BUTTON)$/.test(node.tagName)) text += ` ${node.textContent} `;
  }
  return text;
};

const fieldValue = (element, role) => {
  if (role === "checkbox" || role === "radio" || role === "button") return "";
  if (element.tagName === "SELECT") return [...element.selectedOptions].map((option) => collapse(option.text)).join(", ");
  if (element.type === "password") return "\u2022".repeat(element.value.length);
  if ("value" in element && /^(INPUT|TEXTAREA)$/.test(element.tagName)) return String(element.value).toWellFormed().slice(0, MAX_TEXT);
  if (element.isContentEditable) return collapse(element.innerText);
  return collapse(element.getAttribute("aria-valuenow")) || (role === "slider" ? textOf(element) : "");
};

const statesOf = (element, role) => {
  const states = new Set();
  if (element.checked === true && (role === "checkbox" || role === "radio")) states.add("checked");
  if (element.matches(":disabled")) states.add("disabled");
  if (element.readOnly === true) states.add("readonly");
  if (element.multiple === true && role === "listbox") states.add("multiple");
  if (document.activeElement === element && element !== document.body) states.add("focused");
  for (const [attribute, on, off] of [["aria-checked", "checked"], ["aria-selected", "selected"],
    ["aria-pressed", "pressed"], ["aria-disabled", "disabled"], ["aria-expanded", "expanded", "collapsed"]]) {
    const value = element.getAttribute(attribute);
    if (value === "true") states.add(on);
    else if (value === "false" && off) states.add(off);
  }
  // A link in a list of pages or tabs shows the state of its list item.
  const item = element.tagName === "A" && element.parentElement?.tagName === "LI" ? element.parentElement : element;
  for (const token of [...element.classList, ...item.classList]) {
    if (Object.hasOwn(STATE_CLASSES, token)) {
      const state = STATE_CLASSES[token];
      states.add(state === "pressed" && role !== "button" && role !== "img" ? "selected" : state);
    }
  }
  return [...states].sort();
};

const isHidden = (element, style) => style.display === "none" || style.visibility !== "visible" || style.opacity === "0";

// The part of an element's box that overflow:hidden ancestors leave; null when nothing is left.
const clipTo = (rect, clip) => {
  if (!clip) return rect;
  const left = Math.max(rect.left, clip.left), top = Math.max(rect.top, clip.top);
  const right = Math.min(rect.right, clip.right), bottom = Math.min(rect.bottom, clip.bottom);
  return right - left >= 1 && bottom - top >= 1 ? { left, top, right, bottom } : null;
};

const SHAPES = { circle: "circle", ellipse: "ellipse", rect: "rectangle", polygon: "polygon", line: "line", path: "path" };
const shapeKind = (element) => {
  if (element.tagName !== "polygon") return SHAPES[element.tagName];
  const corners = element.points?.numberOfItems ?? 0;
  return { 3: "triangle", 4: "quadrilateral", 5: "pentagon", 6: "hexagon", 7: "heptagon", 8: "octagon" }[corners] ?? "polygon";
};

const observeSvg = (svg, records) => {
  const origin = svg.getBoundingClientRect();
  const found = [];
  for (const element of svg.querySelectorAll("circle, ellipse, rect, polygon, path, line, text")) {
    const style = getComputedStyle(element);
    if (isHidden(element, style)) continue;
    const rect = element.getBoundingClientRect();
    if (rect.width < 1 && rect.height < 1) continue;
    if (rect.right <= origin.left || rect.left >= origin.right || rect.bottom <= origin.top || rect.top >= origin.bottom) continue;
    found.push({ element, rect, style });
  }
  const sizes = found.filter(({ element }) => !/^(line|path)$/.test(element.tagName))
    .map(({ element, rect }) => parseFloat(element.getAttribute("font-size")) || Math.max(rect.width, rect.height));
  const smallest = Math.min(...sizes), largest = Math.max(...sizes);
  for (const { element, rect, style } of found) {
    const value = `${Math.round(rect.left + rect.width / 2 - origin.left)},${Math.round(rect.top + rect.height / 2 - origin.top)}`;
    const text = element.tagName === "text" ? collapse(element.textContent) : "";
    if (element.tagName === "text" && !text) continue;
    const words = [];
    if (largest > 1.5 * smallest && !/^(line|path)$/.test(element.tagName)) {
      const size = parseFloat(element.getAttribute("font-size")) || Math.max(rect.width, rect.height);
      words.push(size > (smallest + largest) / 2 ? "large" : "small");
    }
    const colour = colourOf(element.getAttribute("fill"), style.fill) || colourOf(element.getAttribute("stroke"), style.stroke);
    if (!(text && colour.startsWith("rgb"))) words.push(colour);
    if (text.length === 1) words.push(/[0-9]/.test(text) ? "digit" : "letter", text);
    else if (!text) words.push(shapeKind(element));
    records.push({ role: text.length > 1 ? "text" : "img", name: text.length > 1 ? text : words.filter(Boolean).join(" "),
      value, states: statesOf(element, "img"), options: [], node: element, interactive: true });
  }
};

// One walk over the page. `run` gathers the text between two boundaries of a block.
const walk = (element, context) => {
  const { records, usedLabels } = context;
  if (SKIPPED_TAGS.has(element.tagName) || SKIPPED_IDS.has(element.id) || records.length >= MAX_ELEMENTS) return;
  const style = getComputedStyle(element);
  if (style.display === "none") return;
  if (element instanceof SVGElement) {
    flush(context);
    if (style.visibility === "visible") observeSvg(element, records);
    return;
  }
  if (element.tagName === "BR" || element.tagName === "HR") { flush(context); return; }
  const contents = style.display === "contents";
  const rect = element.getBoundingClientRect();
  const tiny = rect.width <= 1 && rect.height <= 1 && !contents && style.overflow !== "visible";
  const hidden = isHidden(element, style);
  if (style.opacity === "0" || tiny) return;
  const inline = style.display === "inline" || contents;
  const frame = FRAME_IDS.has(element.id) || element === document.body;
  const declared = declaredRole(element);
  const pointer = style.cursor === "pointer" && context.cursor !== "pointer";
  const listening = !frame && listensForPress(element);
  const clickable = !frame && (listening || pointer || element.tabIndex >= 0 && element.hasAttribute("tabindex"));
  const role = declared || (clickable ? behaviouralRole(element) : "");
  const visible = !hidden && (rect.width > 0 && rect.height > 0) && clipTo(rect, context.clip) !== null
    && rect.right + context.scrolledX > 0 && rect.bottom + context.scrolledY > 0;

  // An accordion takes every second element for a header, a paragraph with a button in it too.
  const atomic = ATOMIC_ROLES.has(declared) && !(declared === "tab" && element.querySelector("button, input, select, textarea"));
  if (atomic) {
    flush(context);
    if (!visible) return;
    records.push(recordOf(element, role, accessibleName(element, role, usedLabels)));
    return;
  }
  if (element.tagName === "IMG") {
    const name = collapse(element.alt || element.title);
    if (!role && !name) return;
    flush(context);
    if (visible) records.push({ ...recordOf(element, "img", accessibleName(element, "img", usedLabels)), interactive: Boolean(role) });
    return;
  }
  let { clip, scrolledX, scrolledY } = context;
  if (style.overflowX !== "visible" && !contents) {
    if (!visible && !hidden) { if (rect.height < 1 || rect.width < 1 || clipTo(rect, clip) === null) return; }
    // What a scroller holds can be scrolled into view, also back; what overflow:hidden cuts off cannot.
    scrolledX += element.scrollLeft;
    scrolledY += element.scrollTop;
    clip = /auto|scroll/.test(style.overflowX + style.overflowY) ? null : (clipTo(rect, clip) ?? clip);
  }
  const boundary = !inline || role;
  if (boundary) flush(context);
  const heading = /^H[1-6]$/.test(element.tagName) || element.getAttribute("role") === "heading";
  const textRole = heading ? "heading" : element.tagName === "TD" || element.tagName === "TH" ? "cell" : inline ? context.textRole : context.textRole === "cell" ? "cell" : "text";
  const first = records.length;
  if (role === "treeitem" && !element.querySelector(":scope > [role=menuitem]")) { observeTreeItem(element, context, clip, style, visible); return; }
  const inner = { ...context, clip, scrolledX, scrolledY, cursor: style.cursor, textRole, hidden, run: boundary ? [] : context.run };
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) {
      if (!hidden && child.data.trim()) inner.run.push({ node: child, parent: element });
      else if (inner.run.length) inner.run.push({ node: child, parent: element });
    } else if (child instanceof Element) {
      walk(child, inner);
    }
  }
  if (boundary) flush(inner);
  if (role) nameByContent(element, role, first, context, visible);
  else if (element.tagName === "TR") joinKeyAndValue(records, first);
};

const recordOf = (element, role, name) => ({
  role, name, value: fieldValue(element, role), states: statesOf(element, role),
  options: element.tagName === "SELECT" ? [...element.options].map((option) => collapse(option.text)) : [],
  node: element, interactive: true,
});

const flush = (context) => {
  const pieces = context.run.splice(0);
  if (!pieces.length) return;
  const name = collapse(pieces.map((piece) => piece.node.data).join(""));
  if (!name) return;
  const shown = pieces.filter((piece) => piece.node.data.trim());
  const range = document.createRange();
  range.selectNodeContents(shown[0].node);
  const rect = range.getBoundingClientRect();
  if (rect.width <= 0 || rect.height <= 0 || clipTo(rect, context.clip) === null) return;
  context.records.push({ role: context.textRole, name, value: "", states: [], options: [], node: shown[0].parent,
    text: shown[0].node, interactive: false });
};

// A tree item is named by its own line; the items of the branch below it stand behind it.
const observeTreeItem = (element, context, clip, style, visible) => {
  const branches = [...element.children].filter((child) => /^(UL|OL)$/.test(child.tagName));
  const own = [...element.childNodes].filter((child) => !branches.includes(child));
  const line = { ...context, records: [], run: [], clip, cursor: style.cursor, textRole: "text" };
  for (const child of own) {
    if (child instanceof Element) walk(child, line);
    else if (child.nodeType === Node.TEXT_NODE && child.data.trim()) line.run.push({ node: child, parent: element });
  }
  flush(line);
  const named = line.records.filter((record) => record.text || textOf(record.node));
  const name = collapse(named.map((record) => record.name).join(" "));
  if (visible && name) context.records.push({ ...recordOf(element, "treeitem", name), text: named[0].text });
  for (const branch of branches) walk(branch, { ...context, clip, cursor: style.cursor, run: [] });
};

// A clickable element without a declared role takes the text inside it as its name. One that also holds other
// interactive elements (a mail with its star) keeps them behind it, and must show by its cursor that it is one.
const nameByContent = (element, role, first, context, visible) => {
  const { records, usedLabels } = context;
  const inside = records.splice(first);
  const texts = inside.filter((record) => !record.interactive);
  const others = inside.filter((record) => record.interactive);
  if (!visible) { records.push(...inside); return; }
  const isPointer = getComputedStyle(element).cursor === "pointer";
  if (!others.length) {
    if (!isPointer && texts.length > 1) { records.push(...inside); return; } // a list that can be sorted, not a button
    const name = collapse(texts.map((record) => record.name).join(" ")) || accessibleName(element, role, usedLabels);
    records.push({ ...recordOf(element, role, name), text: texts[0]?.text });
    return;
  }
  if (!isPointer || !texts.length) { records.push(...inside); return; }
  // The first line names it (a mail's sender), the rest is what it holds.
  const [title, ...rest] = texts.map((record) => record.name);
  records.push({ ...recordOf(element, role, title), value: collapse(rest.join(" ")), text: texts[0].text }, ...others);
};

// A row of a key and a value becomes one element: the key its name, directly before its value.
const joinKeyAndValue = (records, first) => {
  const row = records.slice(first);
  if (row.length !== 2 || row.some((record) => record.role !== "cell" || record.interactive)) return;
  records.splice(first, 2, { ...row[1], name: row[0].name, value: row[1].name });
};

const commonAncestor = (a, b) => {
  let node = a;
  while (node && !node.contains(b)) node = node.parentElement;
  return node;
};

const CAPTION = /^\p{L}[^=]{0,39}$/u; // words, not the number or the sum beside a field

// A field without a name takes the caption beside it: the text before it in the same row, else the text after it.
const nameFieldsByCaption = (records) => {
  const dropped = new Set();
  const unnamed = (record) => record.interactive && !record.name && FIELD_ROLES.has(record.role) && record.role !== "slider";
  records.forEach((record, index) => {
    if (!unnamed(record)) return;
    for (const neighbour of [records[index - 1], records[index + 1]]) {
      if (!neighbour || neighbour.interactive || dropped.has(neighbour) || !CAPTION.test(neighbour.name) || neighbour.value) continue;
      const row = commonAncestor(neighbour.node, record.node);
      if (!row || FRAME_IDS.has(row.id) || row === document.body) continue;
      if (records.filter((other) => other.interactive && FIELD_ROLES.has(other.role) && row.contains(other.node)).length > 1) continue;
      record.name = captionOf(neighbour.name);
      dropped.add(neighbour);
      return;
    }
  });
  return dropped;
};

// The visible elements in document order, numbered where role and name repeat. `node` stays on this side.
H.observe = () => {
  const context = { records: [], usedLabels: new Set(), clip: null, cursor: "auto", textRole: "text", run: [],
    scrolledX: window.scrollX, scrolledY: window.scrollY };
  walk(document.body, context);
  flush(context);
  const unlabelled = context.records.filter((record) => record.interactive || !context.usedLabels.has(record.node.closest("label")));
  const captions = nameFieldsByCaption(unlabelled);
  const records = unlabelled.filter((record) => !captions.has(record));
  const groups = new Map();
  for (const record of records) {
    const key = `${record.role}\u0000${record.name}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(record);
  }
  for (const group of groups.values()) {
    group.forEach((record, index) => { record.occurrence = group.length > 1 ? index + 1 : 0; });
  }
  H.groups = groups;
  return records;
};

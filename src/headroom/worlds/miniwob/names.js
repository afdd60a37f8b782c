// Roles, names, values and states of single elements.
//
// They follow ARIA and the accessible-name computation where the page gives them. Where it does not (a <span> with a
// click handler, an icon, a colour) they are what a sighted user would say.
const MAX_TEXT = 2000;
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

// What a person sees on the page, as a list of elements in document order with role, name, value and states.
const MAX_ELEMENTS = 600;
const SKIPPED_IDS = new Set(["query", "reward-display", "click-canvas", "sync-task-cover", "attention-canvas"]);
const SKIPPED_TAGS = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "META", "LINK", "DATALIST"]);
const FRAME_IDS = new Set(["wrap", "area"]);

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

// Runs in every page before its own scripts. Remembers which elements listen for clicks,
// reads the window as a flat list of elements, and finds where an element can be clicked.
(() => {
  if (window.__wevo) return;
  const listening = new WeakSet();
  const shadows = new WeakMap();
  const addListener = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (/^(click|mousedown|mouseup|pointerdown|pointerup)$/.test(type) && this instanceof Element) listening.add(this);
    return addListener.call(this, type, ...rest);
  };
  const attach = Element.prototype.attachShadow;
  Element.prototype.attachShadow = function (options) {
    const root = attach.call(this, options);
    shadows.set(this, root);
    return root;
  };
  let lastMutation = performance.now();
  const watch = () => new MutationObserver(() => { lastMutation = performance.now(); })
    .observe(document.documentElement, {subtree: true, childList: true, attributes: true, characterData: true});
  if (document.documentElement) watch(); else addListener.call(document, "readystatechange", watch, {once: true});

  const INPUT = {checkbox: "checkbox", radio: "radio", button: "button", submit: "button", reset: "button",
    image: "button", range: "slider", number: "spinbutton", search: "searchbox", hidden: null};
  const ROLE = {
    A: (e) => (e.hasAttribute("href") ? "link" : null), BUTTON: () => "button", TEXTAREA: () => "textbox",
    SELECT: (e) => (e.multiple || e.size > 1 ? "listbox" : "combobox"), OPTION: () => "option", SUMMARY: () => "button",
    INPUT: (e) => (e.type in INPUT ? INPUT[e.type] : "textbox"), IMG: () => "img",
    H1: () => "heading", H2: () => "heading", H3: () => "heading", H4: () => "heading", H5: () => "heading", H6: () => "heading",
  };
  // Roles that are shown as a line of their own; anything else only passes its children on.
  const SHOWN = new Set(["button", "link", "checkbox", "radio", "textbox", "searchbox", "spinbutton", "slider", "combobox",
    "listbox", "option", "heading", "img", "tab", "menuitem", "treeitem", "switch", "dialog", "clickable"]);
  const NAMED_BY_TEXT = new Set(["button", "link", "option", "heading", "tab", "menuitem", "treeitem", "switch", "clickable"]);
  const VALUED = new Set(["textbox", "searchbox", "spinbutton", "slider"]);
  const squeeze = (s) => (s || "").replace(/\s+/g, " ").trim();

  const SELECTOR = "a[href],button,input,select,textarea,[role=button],[role=link],[role=tab],[role=menuitem],[onclick]";
  const interactive = (e) => listening.has(e) || e.onclick || e.matches(SELECTOR);
  // A container that listens for its controls (delegation) and shows nothing of its own is no control.
  const onlyDelegates = (e) => {
    const controls = [...e.querySelectorAll("*")].slice(0, 200).filter(interactive);
    if (!controls.length) return false;
    const walker = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
    for (let text = walker.nextNode(); text; text = walker.nextNode())
      if (squeeze(text.data) && !controls.some((c) => c.contains(text))) return false;
    return true;
  };

  const roleOf = (e, style, pointerAbove) => {
    let role = e.getAttribute("role") || (ROLE[e.tagName] ? ROLE[e.tagName](e) : null);
    if (e.isContentEditable && !e.parentElement?.isContentEditable) role = "textbox";
    const plain = !role || !SHOWN.has(role) || role === "img";
    const acts = listening.has(e) || e.onclick || (style?.cursor === "pointer" && !pointerAbove);
    const page = e === document.body || e === document.documentElement;
    return plain && acts && !page && !onlyDelegates(e) ? "clickable" : role;
  };

  const labelText = (label) => {
    const copy = label.cloneNode(true);
    copy.querySelectorAll("select, textarea, input, script, style").forEach((inner) => inner.remove());
    return squeeze(copy.textContent);
  };

  const nameOf = (e, role) => {
    const direct = squeeze(e.getAttribute("aria-label"));
    if (direct) return direct;
    const ids = squeeze(e.getAttribute("aria-labelledby"));
    if (ids) return squeeze(ids.split(" ").map((id) => document.getElementById(id)?.textContent || "").join(" "));
    if (e.labels?.length) return labelText(e.labels[0]);
    if (e.tagName === "INPUT" && INPUT[e.type] === "button") return squeeze(e.value || e.alt || e.type);
    if (e.tagName === "IMG") return squeeze(e.alt || e.title);
    const text = NAMED_BY_TEXT.has(role) ? squeeze(e.textContent) : "";
    const hint = text || squeeze(e.getAttribute("title") || e.getAttribute("placeholder"));
    if (hint || role !== "clickable") return hint;
    return e.id ? "#" + e.id : squeeze(typeof e.className === "string" ? e.className : e.className.baseVal);
  };

  const propertiesOf = (e, role) => {
    const out = {};
    if (VALUED.has(role)) { const value = squeeze(e.value ?? e.innerText); if (value) out.value = value; }
    if (role === "combobox" && e.selectedOptions) out.value = squeeze(e.selectedOptions[0]?.text);
    if (e.checked || e.getAttribute("aria-checked") === "true") out.checked = true;
    if (e.disabled || e.getAttribute("aria-disabled") === "true") out.disabled = true;
    if (e.hasAttribute("aria-expanded")) out.expanded = e.getAttribute("aria-expanded") === "true";
    if (e.getAttribute("aria-selected") === "true" || (e.tagName === "OPTION" && e.selected && e.closest("select")?.multiple)) out.selected = true;
    return out;
  };

  const inWindow = (box) => box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth && box.width > 0 && box.height > 0;

  let nodes = [];
  // The elements of the window in document order: [{role, name, depth, properties}].
  const observe = () => {
    const out = [];
    nodes = [];
    const add = (node, role, name, depth, properties) => { nodes.push(node); out.push({role, name, depth, properties}); };
    const walk = (node, depth, told, pointerAbove) => {
      if (node.nodeType === Node.TEXT_NODE) {
        const text = squeeze(node.data);
        if (!text || told.includes(text)) return;
        const range = document.createRange();
        range.selectNodeContents(node);
        if (inWindow(range.getBoundingClientRect())) add(node.parentElement || node.parentNode.host, "StaticText", text, depth, {});
        return;
      }
      if (node.nodeType !== Node.ELEMENT_NODE || /^(SCRIPT|STYLE|NOSCRIPT|TEMPLATE|HEAD)$/.test(node.tagName)) return;
      if (node.getAttribute("aria-hidden") === "true") return;
      const option = node.tagName === "OPTION";
      const style = option ? null : getComputedStyle(node);
      if (style && style.display === "none") return;
      const visible = option || (style.visibility === "visible" && inWindow(node.getBoundingClientRect()));
      const role = roleOf(node, style, pointerAbove);
      const name = role && SHOWN.has(role) && visible ? nameOf(node, role) : null;
      const repeats = role === "clickable" && name && told.split("\n")[0] === name;  // the inside of a shown control
      if (name !== null && !repeats) {
        add(node, role, name, depth, propertiesOf(node, role));
        depth += 1;
        told = name + "\n" + told;
      }
      if (node.tagName === "LABEL" && node.control) told = labelText(node) + "\n" + told;  // told as the control's name
      if (VALUED.has(role)) return;
      const root = node.shadowRoot || shadows.get(node);
      const children = root ? root.childNodes : node.tagName === "SLOT" ? node.assignedNodes() : node.childNodes;
      const unseen = style && style.visibility !== "visible";
      for (const child of children) if (!unseen || child.nodeType !== Node.TEXT_NODE) walk(child, depth, told, pointerAbove || style?.cursor === "pointer");
    };
    walk(document.body, 0, "", false);
    return {elements: out, url: location.href, title: document.title};
  };

  const GRID = [[0.5, 0.5], [0.1, 0.5], [0.9, 0.5], [0.5, 0.1], [0.5, 0.9], [0.1, 0.1], [0.9, 0.9], [0.1, 0.9], [0.9, 0.1]];
  // The innermost element at a point, inside shadow roots too.
  const elementAt = (x, y) => {
    let hit = document.elementFromPoint(x, y);
    for (let root = hit && (hit.shadowRoot || shadows.get(hit)); root; root = hit.shadowRoot || shadows.get(hit)) {
      const inner = root.elementFromPoint(x, y);
      if (!inner || inner === hit) break;
      hit = inner;
    }
    return hit;
  };
  const within = (node, e) => {
    for (; node; node = node.assignedSlot || node.parentNode || node.host) if (node === e) return true;
    return false;
  };
  // Where element `id` can be clicked: {x, y}; or {covered: text}, {gone: true}, {disabled: true}, {option: true}.
  const target = (id) => {
    const e = nodes[id - 1];
    if (!e || !e.isConnected) return {gone: true};
    if (e.disabled) return {disabled: true};
    if (e.tagName === "OPTION") return {option: true};
    e.scrollIntoViewIfNeeded?.();
    const box = e.getBoundingClientRect();
    let over = null;
    for (const [fx, fy] of GRID) {
      const x = box.x + box.width * fx, y = box.y + box.height * fy;
      const hit = elementAt(x, y);
      if (hit && (within(hit, e) || [...(e.labels || [])].some((l) => l.contains(hit)))) return {x, y};
      over = over || hit;
    }
    return {covered: over ? `${over.tagName.toLowerCase()} ${squeeze(over.textContent).slice(0, 40)}` : "nothing: it is outside the window"};
  };

  // Chooses a native option the way a person does: the select changes and tells its listeners.
  const choose = (id) => {
    const option = nodes[id - 1], select = option.closest("select");
    if (!select) { option.click(); return; }
    if (select.multiple) option.selected = !option.selected; else select.value = option.value;
    for (const type of ["input", "change"]) select.dispatchEvent(new Event(type, {bubbles: true}));
  };

  // Resolves once nothing has changed for `quiet` ms, at the latest after `deadline` ms.
  const settled = (quiet, deadline) => new Promise((resolve) => {
    const started = performance.now();
    const look = () => {
      const now = performance.now();
      if (now - Math.max(lastMutation, started) >= quiet) resolve(true);
      else if (now - started >= deadline) resolve(false);
      else setTimeout(look, 10);
    };
    look();
  });

  window.__wevo = {observe, target, choose, settled};
})();

// Runs in every frame before the page's own scripts: remembers which elements listen for clicks
// and the roots that closed shadow trees hide, and reads the window as a flat list of elements.
// What it offers (window.__wevo) is completed by actor.js; browser.py calls both.
(() => {
  if (window.__wevo) return;
  const CLICKS = /^(click|mousedown|mouseup|pointerdown|pointerup|dblclick)$/;
  const listening = new WeakSet();
  const shadows = new WeakMap();
  const addListener = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (CLICKS.test(type) && this instanceof Element) listening.add(this);
    return addListener.call(this, type, ...rest);
  };
  const attach = Element.prototype.attachShadow;
  Element.prototype.attachShadow = function (options) {
    const root = attach.call(this, options);
    shadows.set(this, root);
    return root;
  };
  const rootOf = (e) => e.shadowRoot || shadows.get(e);
  const squeeze = (s) => (s || "").replace(/\s+/g, " ").trim();

  // -- roles

  const INPUT = {checkbox: "checkbox", radio: "radio", button: "button", submit: "button", reset: "button",
    image: "button", file: "button", range: "slider", number: "spinbutton", search: "searchbox", hidden: null};
  const PICKERS = new Set(["date", "time", "month", "week", "datetime-local", "color"]);
  const heading = () => "heading", button = () => "button", textbox = () => "textbox";
  const link = (e) => (e.hasAttribute("href") ? "link" : null);
  const ROLE = {
    A: link, AREA: link, BUTTON: button, SUMMARY: (e) => (e.parentElement?.tagName === "DETAILS" ? "button" : null), TEXTAREA: textbox, OPTION: () => "option",
    SELECT: (e) => (e.multiple || e.size > 1 ? "listbox" : "combobox"),
    INPUT: (e) => (e.type in INPUT ? INPUT[e.type] : "textbox"), IMG: () => "img", DIALOG: () => "dialog",
    IFRAME: () => "Iframe", FRAME: () => "Iframe", METER: () => "meter", PROGRESS: () => "progressbar",
    H1: heading, H2: heading, H3: heading, H4: heading, H5: heading, H6: heading,
  };
  // Roles that are shown as a line of their own; anything else only passes its children on.
  const SHOWN = new Set(("button link checkbox radio textbox searchbox spinbutton slider combobox listbox option heading img tab " +
    "menuitem menuitemcheckbox menuitemradio treeitem switch dialog alertdialog meter progressbar Iframe row clickable").split(" "));
  const NAMED_BY_TEXT = new Set(("button link option heading tab menuitem menuitemcheckbox menuitemradio treeitem switch checkbox " +
    "radio clickable").split(" "));
  const VALUED = new Set(["textbox", "searchbox", "spinbutton", "slider", "meter", "progressbar"]);
  const SILENT = new Set("SCRIPT STYLE NOSCRIPT TEMPLATE HEAD TITLE DESC DEFS DATALIST".split(" "));
  const SELECTOR = "a[href],button,input,select,textarea,[role=button],[role=link],[role=tab],[role=menuitem],[onclick]";
  const CONTROLS = SELECTOR + ",summary,label,[role],[tabindex]";
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
  const holdsData = new WeakMap();
  const isData = (table) => {
    if (!holdsData.has(table)) holdsData.set(table, Boolean(table.querySelector("th,caption") || /^(grid|table|treegrid)$/.test(table.getAttribute("role"))));
    return holdsData.get(table);
  };
  const roleOf = (e, style, pointerAbove) => {
    const given = squeeze(e.getAttribute("role")).split(" ")[0];
    let role = given || ROLE[e.tagName]?.(e) || null;
    if (e.isContentEditable && !e.parentElement?.isContentEditable) role = "textbox";
    if (role === "searchbox" && given) role = e.tagName === "INPUT" ? "searchbox" : given;
    if (e.tagName === "TR" && !given) role = e.closest("table") && isData(e.closest("table")) ? "row" : null;
    const plain = !role || !SHOWN.has(role) || role === "img" || role === "row";
    const acts = listening.has(e) || e.onclick || (style?.cursor === "pointer" && !pointerAbove);
    const page = e === document.body || e === document.documentElement;
    return plain && acts && !page && !(role === "row" && !listening.has(e) && !e.onclick) && !onlyDelegates(e) ? "clickable" : role;
  };

  // -- names, after the W3C's accessible name computation; text is cut off at TEXT_CHARS

  const TEXT_CHARS = 1000;
  const unspoken = (e) => e.getAttribute("aria-hidden") === "true" || e.hidden || getComputedStyle(e).display === "none";
  const INLINE = /^(inline|contents|ruby)/;
  const textOf = (e) => {
    let out = "";
    const visit = (node) => {
      if (out.length > TEXT_CHARS) return;
      if (node.nodeType === Node.TEXT_NODE) { out += node.data; return; }
      if (node.nodeType !== Node.ELEMENT_NODE || SILENT.has(node.tagName)) return;
      if (node.tagName === "BR") { out += " "; return; }
      if (node !== e && (unspoken(node) || getComputedStyle(node).visibility === "hidden")) return;
      const said = node === e ? "" : squeeze(node.getAttribute("aria-label")) || (node.tagName === "IMG" ? squeeze(node.alt) : "");
      const field = node === e ? "" : /^(INPUT|TEXTAREA)$/.test(node.tagName) ? (/^(checkbox|radio|hidden)$/.test(node.type) ? " " : node.value + " ")
        : node.tagName === "SELECT" ? squeeze(node.selectedOptions[0]?.text) + " " : "";
      const apart = node !== e && !INLINE.test(getComputedStyle(node).display);
      if (apart) out += " ";
      if (said || field) out += field.trim() || said;
      else if (node.tagName === "SVG" || node.tagName === "svg") out += squeeze(node.querySelector("title")?.textContent);
      else for (const child of childrenOf(node)) visit(child);
      if (apart) out += " ";
    };
    visit(e);
    return squeeze(out);
  };
  const childrenOf = (node) => {
    const root = rootOf(node);
    if (root) return root.childNodes;
    const given = node.tagName === "SLOT" ? node.assignedNodes({flatten: true}) : [];
    return given.length ? given : node.childNodes;
  };
  const labelText = (label, control) => {
    const own = squeeze(label.getAttribute("aria-label"));
    if (own || !label.contains(control)) return own || textOf(label);
    let out = "";
    const visit = (node) => {
      if (node === control || SILENT.has(node.tagName)) return;
      if (node.nodeType === Node.TEXT_NODE) out += node.data;
      else if (node.nodeType === Node.ELEMENT_NODE && !/^(SELECT|TEXTAREA|INPUT)$/.test(node.tagName) && !unspoken(node)) {
        if (node.contains(control)) for (const child of node.childNodes) visit(child);
        else out += (INLINE.test(getComputedStyle(node).display) ? "" : " ") + textOf(node) + " ";
      }
    };
    visit(label);
    return squeeze(out);
  };
  const ROW_CELLS = "[role=cell],[role=gridcell],[role=columnheader],[role=rowheader]";
  const nameOf = (e, role) => {
    const ids = squeeze(e.getAttribute("aria-labelledby"));
    const scope = ids ? e.getRootNode() : null;
    const pointed = ids ? squeeze(ids.split(" ").map((id) => { const of = scope.getElementById?.(id); return of ? squeeze(of.getAttribute("aria-label")) || textOf(of) : ""; }).join(" ")) : "";
    const direct = pointed || squeeze(e.getAttribute("aria-label"));
    if (direct) return direct;
    if (role === "row") return [...(e.cells || e.querySelectorAll(ROW_CELLS))].map(textOf).join(" | ");
    if (e.labels?.length) { const told = squeeze([...e.labels].map((label) => labelText(label, e)).join(" ")); if (told) return told; }
    if (e.tagName === "INPUT" && INPUT[e.type] === "button")
      return squeeze(e.type === "image" ? e.alt || e.title : e.type === "file" ? "Choose file" : e.value || e.title) || {submit: "Submit", reset: "Reset", image: "Submit"}[e.type] || "";
    if (e.tagName === "IMG" || e.tagName === "AREA") return squeeze(e.alt || e.title);
    if (role === "Iframe") return squeeze(e.title || e.name);
    const text = NAMED_BY_TEXT.has(role) ? textOf(e) : "";
    const hint = text || squeeze(e.getAttribute("title") || e.getAttribute("placeholder"));
    if (hint || role !== "clickable") return hint;
    return e.id ? "#" + e.id : squeeze(typeof e.className === "string" ? e.className : e.className.baseVal);
  };

  const propertiesOf = (e, role) => {
    const out = {};
    const given = (name) => e.getAttribute("aria-" + name);
    const secret = e.tagName === "INPUT" && e.type === "password";
    if (VALUED.has(role)) {
      const value = squeeze(given("valuetext") || String((e.isContentEditable ? textOf(e) : e.value) ?? given("valuenow") ?? ""));
      if (value) out.value = secret ? "•".repeat(value.length) : value;
    }
    if (e.tagName === "SELECT" && role === "combobox") out.value = squeeze(e.selectedOptions[0]?.text);
    else if (role === "combobox" && e.value) out.value = squeeze(e.value);
    if (PICKERS.has(e.type)) out.type = e.type;
    if (given("checked") === "mixed" || e.indeterminate) out.checked = "mixed";
    else if (e.checked || given("checked") === "true") out.checked = true;
    if (given("pressed") === "true") out.pressed = true;
    if (e.matches(":disabled") || given("disabled") === "true" || e.closest("[inert]")) out.disabled = true;
    if (e.readOnly && VALUED.has(role)) out.readonly = true;
    if (e.hasAttribute("aria-expanded")) out.expanded = given("expanded") === "true";
    else if (e.tagName === "SUMMARY" && e.parentElement?.tagName === "DETAILS") out.expanded = e.parentElement.open;
    if (given("selected") === "true" || (e.tagName === "OPTION" && e.selected && e.closest("select")?.multiple)) out.selected = true;
    const popup = given("haspopup");
    if (popup && popup !== "false") out.hasPopup = popup === "true" ? "menu" : popup;
    if (given("invalid") === "true") out.invalid = true;
    return out;
  };

  // -- what a person can see

  const cross = (a, b) => ({left: Math.max(a.left, b.left), top: Math.max(a.top, b.top), right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom)});
  const seen = (box, clip) => { const c = cross(box, clip); return c.right - c.left > 1 && c.bottom - c.top > 1; };
  const contents = (node) => { const range = document.createRange(); range.selectNodeContents(node); return range.getBoundingClientRect(); };
  const boxOf = (e) => {
    const box = e.getBoundingClientRect();
    return (box.width > 1 && box.height > 1) || !e.firstChild || getComputedStyle(e).overflow !== "visible" ? box : contents(e);  // a link around a block or a float
  };
  const within = (node, e) => {
    for (; node; node = node.assignedSlot || node.parentNode || node.host) if (node === e) return true;
    return false;
  };
  // The innermost element at a point, inside shadow roots too.
  const elementAt = (x, y) => {
    let hit = document.elementFromPoint(x, y);
    for (let root = hit && rootOf(hit); root; root = rootOf(hit)) {
      const inner = root.elementFromPoint(x, y);
      if (!inner || inner === hit) break;
      hit = inner;
    }
    return hit;
  };
  // The layer that lies over the whole window (a modal dialog or its backdrop), or null.
  const coveringLayer = (clip) => {
    const modal = [...document.querySelectorAll("dialog:modal")].pop();
    if (modal) return modal;
    const corners = [[clip.left + 2, clip.top + 2], [clip.right - 3, clip.top + 2], [clip.left + 2, clip.bottom - 3], [clip.right - 3, clip.bottom - 3]];
    const layers = corners.map(([x, y]) => {
      for (let e = elementAt(x, y); e && e !== document.body && e !== document.documentElement; e = e.parentElement || e.getRootNode().host) {
        if (!/^(fixed|absolute)$/.test(getComputedStyle(e).position)) continue;
        const box = e.getBoundingClientRect();
        if (box.left <= clip.left + 2 && box.top <= clip.top + 2 && box.right >= clip.right - 3 && box.bottom >= clip.bottom - 3) return e;
      }
      return null;
    });
    return layers.every((layer) => layer && layer === layers[0]) ? layers[0] : null;
  };
  const POINTS = [[0.5, 0.5], [0.1, 0.1], [0.9, 0.9], [0.1, 0.9], [0.9, 0.1]];
  const reachable = (e, box, clip) => {
    const c = cross(box, clip);
    return POINTS.some(([fx, fy]) => {
      const hit = elementAt(c.left + (c.right - c.left) * fx, c.top + (c.bottom - c.top) * fy);
      return hit && (within(hit, e) || within(e, hit));
    });
  };
  // On large pages a subtree is skipped whose box lies outside the window, unless its content overflows
  // that box, or one of a few points of the window hits something in it (a menu or a dialog that is laid
  // out elsewhere). A hit test costs up to half a millisecond on such pages, so the points are few.
  const LARGE = 800, COLUMNS = 6, ROWS = 5;
  const overflows = (e) => e.clientHeight > 0 && (e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1);
  const hitByGrid = (clip) => {
    const found = new Set(), dx = (clip.right - clip.left) / COLUMNS, dy = (clip.bottom - clip.top) / ROWS;
    for (let x = clip.left + dx / 2; x < clip.right; x += dx)
      for (let y = clip.top + dy / 2; y < clip.bottom; y += dy)
        for (let e = document.elementFromPoint(x, y); e && !found.has(e); e = e.parentElement || e.getRootNode().host) found.add(e);
    for (const e of document.querySelectorAll(CONTROLS))
      if (!found.has(e) && seen(e.getBoundingClientRect(), clip))
        for (let up = e; up && !found.has(up); up = up.parentElement || up.getRootNode().host) found.add(up);
    return found;
  };

  // -- the reading

  const READ_MS = 700;  // a reading takes no longer; what was not reached by then is told
  const OPTIONS = 50;  // of a select that are shown, around the chosen one
  const wevo = {nodes: [], told: [], generation: 0, readAt: -1, lastMutation: performance.now(), listening, squeeze, rootOf, elementAt, within, boxOf, nameOf, interactive, PICKERS};

  // The elements of the window in document order: {elements: [{role, name, depth, properties}], ...}.
  // `clip` is the part of this frame that can be seen, [left, top, right, bottom]; null: all of it.
  wevo.observe = ({generation, clip, nameChars}) => {
    const whole = clip ? {left: clip[0], top: clip[1], right: clip[2], bottom: clip[3]} : {left: 0, top: 0, right: innerWidth, bottom: innerHeight};
    const out = [];
    Object.assign(wevo, {nodes: [], told: [], generation, readAt: performance.now()});
    const add = (node, role, name, depth, properties, more) => {
      wevo.nodes.push(node);
      wevo.told.push(role + " " + name);
      out.push({role, name, depth, properties, ...more});
    };
    const body = document.body;
    const layer = body && coveringLayer(whole);
    const covered = (e, box, clip) => layer && !within(e, layer) && !reachable(e, box, clip);
    const hits = document.getElementsByTagName("*").length > LARGE ? hitByGrid(whole) : null;

    const walkText = (node, depth, told, clip, ghost) => {
      const text = squeeze(node.data);
      if (!text || ghost || told.includes(text)) return;
      const box = contents(node), parent = node.parentElement || node.parentNode.host;
      if (seen(box, clip) && !covered(parent, box, clip)) add(parent, "StaticText", text, depth, {});
    };
    const walkOptions = (select, depth) => {
      const all = [...select.options], at = Math.max(0, select.selectedIndex - OPTIONS / 2);
      for (const option of all.slice(at, at + OPTIONS)) add(option, "option", squeeze(option.label), depth, propertiesOf(option, "option"));
      if (all.length > OPTIONS) add(select, "note", `${all.length - OPTIONS} more options`, depth, {});
    };
    const started = performance.now();
    let cut = false;
    const walk = (node, depth, told, pointerAbove, clip, outer, ghost) => {
      if (cut || (cut = performance.now() - started > READ_MS)) return;
      if (node.nodeType === Node.TEXT_NODE) return walkText(node, depth, told, clip, ghost);
      if (node.nodeType !== Node.ELEMENT_NODE || SILENT.has(node.tagName) || node.getAttribute("aria-hidden") === "true") return;
      const style = getComputedStyle(node);
      const label = node.tagName === "INPUT" && /^(checkbox|radio|file)$/.test(node.type) ? [...node.labels].find((l) => seen(l.getBoundingClientRect(), clip)) : null;
      if (style.display === "none" && !label) return;
      const out_of_flow = style.position === "fixed" ? whole : style.position === "absolute" ? outer : null;
      clip = out_of_flow || clip;
      ghost = ghost || style.opacity === "0";
      if (ghost && style.pointerEvents === "none") return;
      const own = node.getBoundingClientRect();
      if (hits && !hits.has(node) && own.width > 1 && own.height > 1 && !seen(own, whole) && node !== body && !label && !overflows(node)) return;
      const role = roleOf(node, style, pointerAbove);
      let name = null;
      if (role && SHOWN.has(role)) {
        const box = own.width > 1 && own.height > 1 ? own : boxOf(node);
        const there = style.visibility === "visible" && seen(box, clip) && !covered(node, box, clip);
        if (there || label) name = nameOf(node, role);
      }
      const repeats = role === "clickable" && name !== null && name && told.split("\n")[0] === name;  // the inside of a shown control
      if (name !== null && !repeats && !(role === "row" && !name.replace(/[| ]/g, ""))) {
        const more = role === "Iframe" ? {frame: true, box: [own.left + node.clientLeft, own.top + node.clientTop, own.right, own.bottom], clip: Object.values(cross(own, clip))} : {};
        add(node, role, name, depth, propertiesOf(node, role), more);
        depth += 1;
        told = (/^(clickable|row)$/.test(role) ? name.slice(0, nameChars) : name) + "\n" + told;
      }
      if (node.tagName === "LABEL" && node.control && node.control.type !== "hidden" && getComputedStyle(node.control).visibility === "visible")
        told = labelText(node, node.control) + "\n" + told;  // told as the control's name
      if (node.tagName === "SELECT") return name !== null ? walkOptions(node, depth) : undefined;
      if (VALUED.has(role) || role === "Iframe" || style.contentVisibility === "hidden") return;
      if (style.overflowX !== "visible" || style.overflowY !== "visible") {
        if (node !== body && node !== document.documentElement) {
          clip = cross(clip, own);
          if (style.position !== "static") outer = clip;
        }
      } else if (style.position !== "static") outer = clip;
      const unseen = style.visibility !== "visible", closed = node.tagName === "DETAILS" && !node.open;
      const summary = closed ? [...node.children].find((c) => c.tagName === "SUMMARY") : null;
      for (const child of childrenOf(node)) {
        if (closed && child !== summary && child.tagName !== "SLOT") continue;
        if (!unseen || child.nodeType !== Node.TEXT_NODE) walk(child, depth, told, pointerAbove || style.cursor === "pointer", clip, outer, ghost);
      }
    };
    if (body) walk(body, 0, "", false, whole, whole, false);
    if (cut) add(body, "note", "the page is too large to be read whole: more may be in the window", 0, {});
    const pane = wevo.mainPane();
    return {elements: out, url: location.href, title: document.title, above: Math.round(pane.scrollTop),
      below: Math.max(0, Math.round(pane.scrollHeight - pane.scrollTop - pane.clientHeight))};
  };

  Object.defineProperty(window, "__wevo", {value: wevo});
})();

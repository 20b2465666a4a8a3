// Runs after observer.js in every frame: finds where an element of the last reading can be
// clicked, prepares fields, chooses options, scrolls, and tells when the page is quiet.
(() => {
  const wevo = window.__wevo;
  if (wevo.settled) return;
  new MutationObserver(() => { wevo.lastMutation = performance.now(); })
    .observe(document, {subtree: true, childList: true, attributes: true, characterData: true});

  // Element `id` of reading `generation`, or why there is none: {stale}, {unknown}, {gone}.
  const find = (generation, id) => {
    if (generation !== wevo.generation) return {stale: true};
    const e = wevo.nodes[id - 1];
    if (!e) return {unknown: true};
    if (!e.isConnected) return {gone: true};
    return {e};
  };
  // What the element is now, where that is no longer what was read. A time may run: a clock is still the same clock.
  const other = (e, id) => {
    const told = wevo.told[id - 1], role = told.split(" ")[0];
    if (role === "StaticText" || role === "note" || role === "row") return null;
    const now = role + " " + (role === "option" && e.label !== undefined ? wevo.squeeze(e.label) : wevo.nameOf(e, role));
    const plain = (s) => s.replace(/\d+(?=\s*(s|sec|seconds?|m|min|minutes?|h|hours?)\b|:\d)/gi, "0").replace(/:\d+/g, ":0");
    return plain(now) === plain(told) ? null : now;
  };

  const GRID = [[0.5, 0.5], [0.1, 0.5], [0.9, 0.5], [0.5, 0.1], [0.5, 0.9], [0.1, 0.1], [0.9, 0.9], [0.1, 0.9], [0.9, 0.1]];
  // No other control lies between: a click there means `e` itself.
  const own = (hit, e) => {
    for (let n = hit; n && n !== e; n = n.assignedSlot || n.parentNode || n.host)
      if (n.nodeType === Node.ELEMENT_NODE && wevo.interactive(n)) return false;
    return true;
  };
  const clickable = (e, accepted) => {
    const best = spot(e, (hit) => accepted(hit) && own(hit, e));
    return "covered" in best ? spot(e, accepted) : best;
  };
  const spot = (e, accepted) => {
    let over = null;
    for (const box of [...e.getClientRects(), wevo.boxOf(e)])
      for (const [fx, fy] of GRID) {
        const x = box.left + box.width * fx, y = box.top + box.height * fy;
        const hit = x >= 0 && y >= 0 && x < innerWidth && y < innerHeight ? wevo.elementAt(x, y) : null;
        if (hit && accepted(hit)) return {x, y};
        over = over || hit;
      }
    return {covered: over ? `${over.tagName.toLowerCase()} ${wevo.squeeze(over.textContent).slice(0, 40)}` : "nothing: it is outside the window"};
  };

  // Where element `id` can be clicked: {x, y} in this frame; or {stale}, {unknown}, {gone}, {changed: what it is now},
  // {disabled}, {file}, {covered: by what}, {option} for an option of a native select.
  wevo.place = (generation, id) => {
    const found = find(generation, id);
    if (!found.e) return found;
    const e = found.e, now = other(e, id);
    if (now !== null) return {changed: now};
    if (e.matches(":disabled") || e.getAttribute("aria-disabled") === "true" || e.closest("[inert]")) return {disabled: true};
    if (e.tagName === "INPUT" && e.type === "file") return {file: true};
    if (e.tagName === "OPTION" && e.closest("select")) return e.closest("select").matches(":disabled") ? {disabled: true} : {option: true};
    e.scrollIntoViewIfNeeded?.();
    const labels = [...(e.labels || [])];
    const place = clickable(e, (hit) => wevo.within(hit, e) || labels.some((l) => l.contains(hit)));
    if (!("covered" in place)) return place;
    for (const label of labels) {
      const through = clickable(label, (hit) => wevo.within(hit, label));
      if (!("covered" in through)) return through;
    }
    return place;
  };

  // The field that typing into element `id` means: {kind: text | picker | none | readonly}.
  const field = (e) => {
    const inner = "input:not([type=hidden]),textarea,[contenteditable=''],[contenteditable=true]";
    return e.matches(inner) || e.isContentEditable ? e : e.querySelector(inner) || wevo.rootOf(e)?.querySelector(inner);
  };
  wevo.fieldKind = (generation, id) => {
    const e = find(generation, id).e, at = e && field(e);
    if (!at) return "none";
    if (/^(checkbox|radio|button|submit|reset|image|file|range)$/.test(at.type) && at.tagName === "INPUT") return "none";
    if (at.readOnly) return "readonly";
    return wevo.PICKERS.has(at.type) ? "picker" : "text";
  };
  wevo.focusField = (generation, id) => {
    const at = field(find(generation, id).e);
    if (at.getRootNode().activeElement !== at) at.focus();
    if (at.select && !at.isContentEditable) at.select();
    else document.getSelection().selectAllChildren(at);
  };
  wevo.fill = (generation, id, text) => {
    const at = field(find(generation, id).e);
    at.value = text;
    for (const type of ["input", "change"]) at.dispatchEvent(new Event(type, {bubbles: true}));
    return at.value === text;
  };

  // Chooses options the way a person does: the select changes and tells its listeners.
  const tell = (select) => { for (const type of ["input", "change"]) select.dispatchEvent(new Event(type, {bubbles: true})); };
  const take = (select, option) => {
    if (select.multiple) option.selected = !option.selected; else select.selectedIndex = option.index;
    tell(select);
  };
  wevo.choose = (generation, id) => { const option = find(generation, id).e; take(option.closest("select"), option); };
  // By label, else by value, else by label in any case: {} or {options: labels there are}, {notASelect}.
  wevo.select = (generation, id, text) => {
    const e = find(generation, id).e, select = e.tagName === "SELECT" ? e : e.closest("select");
    if (!select) return {notASelect: true};
    const all = [...select.options], wanted = wevo.squeeze(text), low = wanted.toLowerCase();
    const option = all.find((o) => wevo.squeeze(o.label) === wanted) || all.find((o) => o.value === wanted) ||
      all.find((o) => wevo.squeeze(o.label).toLowerCase() === low);
    if (!option || option.matches(":disabled")) return {options: all.filter((o) => !o.matches(":disabled")).map((o) => wevo.squeeze(o.label))};
    if (!(select.multiple && option.selected)) take(select, option);
    return {};
  };

  // -- scrolling: the window, or the pane in its middle where the window itself cannot scroll

  const scrolls = (e) => e.scrollHeight > e.clientHeight + 1 && /^(auto|scroll)$/.test(getComputedStyle(e).overflowY);
  const paneOf = (e) => {
    for (; e; e = e.parentElement || e.getRootNode().host) if (scrolls(e)) return e;
    return document.scrollingElement || document.documentElement;
  };
  wevo.mainPane = () => {
    const page = document.scrollingElement || document.documentElement;
    if (page.scrollHeight > page.clientHeight + 1) return page;
    return paneOf(wevo.elementAt(innerWidth / 2, innerHeight / 2));
  };
  // Scrolls by the height of the window, or of the pane that holds element `id`: {moved}, or why there is no pane.
  wevo.scroll = (generation, id, sign) => {
    const found = id === null ? {e: null} : find(generation, id);
    if (!("e" in found)) return found;
    const pane = id === null ? wevo.mainPane() : paneOf(found.e);
    const before = pane.scrollTop;
    pane.scrollBy({top: sign * pane.clientHeight, behavior: "instant"});
    return {moved: pane.scrollTop !== before};
  };

  // -- waiting

  // Resolves once nothing has changed for `quiet` ms: true; at the latest after `deadline` ms: false.
  // Where nothing at all has changed since the last reading, a third of `quiet` is enough.
  wevo.settled = (quiet, deadline) => new Promise((resolve) => {
    const started = performance.now();
    const look = () => {
      const now = performance.now(), still = wevo.lastMutation <= wevo.readAt;
      const quietFor = now - (still ? started : wevo.lastMutation);
      if (document.readyState !== "loading" && quietFor >= (still ? quiet / 3 : quiet)) resolve(true);
      else if (now - started >= deadline) resolve(false);
      else setTimeout(look, 5);
    };
    look();
  });
  // Resolves as soon as anything changes, at the latest after `deadline` ms.
  wevo.changed = (deadline) => new Promise((resolve) => {
    const started = performance.now();
    const look = () => {
      const now = performance.now();
      if (wevo.lastMutation > started || now - started >= deadline) resolve(wevo.lastMutation > started);
      else setTimeout(look, 20);
    };
    look();
  });
  // Boxes of the reading in this frame, [left, top, width, height] each, for pictures.
  wevo.boxes = () => wevo.nodes.map((e) => { const box = wevo.boxOf(e); return [box.left, box.top, box.width, box.height]; });
  wevo.indexOf = (e) => wevo.nodes.indexOf(e) + 1;
  // Elements that another reader found (the v0 format) take the place of the reading.
  wevo.adopt = (generation, elements) => { Object.assign(wevo, {generation, nodes: elements, told: elements.map(() => "StaticText ")}); };
  for (const [name, value] of Object.entries(wevo))  // a page cannot put others in their place
    if (typeof value === "function") Object.defineProperty(wevo, name, {writable: false, configurable: false});
})();

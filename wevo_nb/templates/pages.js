// The keys, and light or dark. Pages work without it. What a recorded page says never passes through here.
"use strict";
(() => {
  const kept = "wevo-theme";
  const root = document.documentElement;
  try { if (localStorage.getItem(kept)) root.dataset.theme = localStorage.getItem(kept); } catch { /* a file without storage */ }

  function switchTheme() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem(kept, root.dataset.theme); } catch { /* a file without storage */ }
  }

  function move(by) {
    const items = document.body.dataset.items ? [...document.querySelectorAll(document.body.dataset.items)] : [];
    if (!items.length) return;
    const at = items.findIndex(item => item.contains(document.activeElement));
    const next = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(Math.max(at + by, 0), items.length - 1)];
    next.focus({ preventScroll: true, focusVisible: true });
    next.scrollIntoView({ block: next.matches("a") ? "center" : "start" });
  }

  function follow(rel) {
    const link = document.querySelector(`a[rel="${rel}"]`);
    if (link) link.click();
    return Boolean(link);
  }

  function search() {
    const field = document.querySelector("input[type=search]");
    const list = document.querySelector("a[rel=up]")?.href || "/";
    if (field) { field.focus(); field.select(); } else if (document.querySelector("#keys")) location.href = `${list}#search`;
  }

  function toggleKeys() {
    const dialog = document.querySelector("#keys");
    if (dialog) { if (dialog.open) dialog.close(); else dialog.showModal(); }
  }

  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("input, select, textarea");
    if (field) { if (event.key === "Escape") field.blur(); return; }
    const list = (document.body.dataset.items || "").includes("a");
    const open = document.querySelector("#keys")?.open;
    const keys = {
      j: () => move(1), k: () => move(-1), ArrowRight: () => follow("next"), ArrowLeft: () => follow("prev"),
      u: () => follow("up"), "/": search, t: switchTheme, "?": toggleKeys,
    };
    if (list) Object.assign(keys, { ArrowDown: () => move(1), ArrowUp: () => move(-1) });
    if (!(event.key in keys) || (open && event.key !== "?")) return;
    event.preventDefault();
    keys[event.key]();
  });

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelector("#theme")?.addEventListener("click", switchTheme);
    document.querySelector("#help")?.addEventListener("click", toggleKeys);
    for (const choice of document.querySelectorAll("form select")) choice.addEventListener("change", () => choice.form.submit());
    if (matchMedia("(max-width: 48em)").matches) document.querySelector(".filters details")?.removeAttribute("open");
    if (location.hash === "#search") search();
  });
})();

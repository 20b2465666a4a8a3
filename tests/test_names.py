"""Roles and names that observer.js computes, held against Chromium's own accessibility tree.

Every difference on the fixture pages is listed here with its reason; a new one fails.
"""

from __future__ import annotations

import pytest
import test_actor
import test_observer
from local_site import LocalSite, Visit

from wevo_nb import axtree

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

NAMES = """<!doctype html><title>Names</title>
<button aria-label="by label">x</button> <button aria-labelledby="a b">x</button> <span id="a">two</span><span id="b">parts</span>
<button title="by title"></button> <button title="more">text wins</button> <input placeholder="by placeholder">
<input title="by title" placeholder="not this"> <label for="f">by label for</label><input id="f">
<label>around <input> behind</label> <label>choose <select><option>x<option>y</select> now</label>
<label for="g">one</label><label for="g">two</label><input id="g"> <input type="submit" value="by value">
<input type="image" alt="by alt"> <img alt="picture"> <a href="#">link <b>with</b> parts<span> here</span></a>
<a href="#"><img alt="only picture"></a> <a href="#">text <img alt="and picture"></a> <a href="#" aria-label="">empty label</a>
<button>a<span style="display:none">hidden</span>b</button> <button>c<span aria-hidden="true">icon</span>d</button>
<button><div>block</div><div>and block</div></button> <button>line<br>break</button> <button>  much   space </button>
<h2>heading <small>small</small></h2> <button>with <input value="value" aria-label="in"> inside</button>
<div role="checkbox" aria-checked="false">role box</div> <div role="button"><svg><title>svg title</title></svg></div>
<fieldset><legend>group</legend><label><input type="radio" name="r">in group</label></fieldset>
<button>it's "quoted"</button> <textarea aria-label="area">held</textarea> <button style="text-transform:uppercase">case</button>
<a href="#" style="float:left"><div>float</div></a> <summary>no details</summary> <progress aria-label="done" value="3" max="9"></progress>
<input type="checkbox" aria-labelledby="self l" aria-label="Self" id="self"><i id="l">and other</i>
<input type="range" title="range title"> <select title="pick"><option label="short">long</option></select>
<div role="link" tabindex="0">role link</div> <button><i>in</i><i>line</i></button> <a href="#" title="tip"> </a>"""
PAGES = {"names": NAMES, **{k: test_observer.PAGES[k] for k in ("controls", "styled", "text", "upper", "table", "modal")},
         **{k: test_actor.PAGES[k] for k in ("select", "fields", "off")}}  # fmt: skip

# Where the two differ, and why that is meant. (ours, Chromium's) roles:
ROLES = {
    ("img", "image"): "the older name of the same role, as in the paper's observations",
    ("button", "DisclosureTriangle"): "a summary is pressed like a button",
    ("textbox", "Date"): "a date is typed; the property `type: 'date'` says so",
    ("textbox", "generic"): "Chromium's tree gives a contenteditable element no role of its own",
}
NOT_IN_TREE = {
    "radio": "the field is not displayed, its label is, and a person uses the label",
    "checkbox": "as for radio",
    "button": "an inert one is seen by a person, and told as disabled",
}
NAMES_DIFFER = {
    "case": "a style gives the letters another case; the name is as written",
    "space": "parts that a style sets apart are read apart, Chromium runs them together",
    "generated": "a mark that a style sheet adds, like the star of a required field, is no part of the name",
    "hidden label": "a label that is not displayed still names its field; Chromium leaves the field without a name",
    "option label": "a person sees the label attribute of an option, Chromium's tree holds its empty text",
}


def explained(ours: tuple[str, str], theirs: tuple[str, str]) -> str:
    """Which of the reasons above a difference has; empty where it has none."""
    if theirs == ("nothing", ""):
        return ours[0] if ours[0] in NOT_IN_TREE else ""
    if ours[0] != theirs[0] and (ours[0], theirs[0]) not in ROLES:
        return ""
    a, b = ours[1].lower(), theirs[1].lower()
    if ours[1] == theirs[1]:
        return f"{ours[0]}, {theirs[0]}"
    if a == b:
        return "case"
    if a.replace(" ", "") == b.replace(" ", ""):
        return "space"
    if b == f"{a} *":
        return "generated"
    return ("option label" if ours[0] == "option" else "hidden label") if not b else ""


async def compared(env) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """(ours, Chromium's) role and name of every element where they differ. Text, rows and listeners have no counterpart."""
    tree = {node.backend: node for node in (await axtree.read_tree(env.page, 10**9)).values()}
    session = await env.page.context.new_cdp_session(env.page)
    out = []
    for element in env.elements:
        if element.line["role"] in ("StaticText", "row", "clickable", "note"):
            continue
        given = {"expression": f"window.__wevo.nodes[{element.local - 1}]"}
        found = (await session.send("Runtime.evaluate", given))["result"]
        node = (await session.send("DOM.describeNode", {"objectId": found["objectId"]}))["node"]
        theirs = tree.get(node["backendNodeId"])
        ours = (element.line["role"], element.line["name"])
        wanted = (theirs.role, " ".join(theirs.name.split())) if theirs else ("nothing", "")
        if ours != wanted:
            out.append((ours, wanted))
    return out


@pytest.mark.parametrize("page", PAGES)
async def test_names_and_roles_are_chromiums(chromium, page):
    with LocalSite(PAGES) as site:
        async with Visit(chromium, site, page) as (env, seen):
            assert len(env.elements) == seen.text.count("\n") + 1
            found = await compared(env)
    assert [pair for pair in found if not explained(*pair)] == []


async def test_every_reason_is_needed(chromium):
    """The reasons that the fixture pages show; the others are those of the five sites (test_names_sites.py)."""
    reasons = set()
    with LocalSite(PAGES) as site:
        for page in PAGES:
            async with Visit(chromium, site, page) as (env, _):
                reasons |= {explained(*pair) for pair in await compared(env)}
    assert reasons == {f"{a}, {b}" for a, b in ROLES} | {"case", "radio", "button"}

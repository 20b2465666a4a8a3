"""Random pages and random replies: no exception leaves an episode, every observation reads back, every id is its own."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_site import LocalSite
from stand_ins import SMOKE, Scripted

from wevo_nb.browser import BrowserEnv
from wevo_nb.observation import is_page
from wevo_nb.policies import ModelPolicy
from wevo_nb.rollout import rollout
from wevo_nb.schema import Task

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

words = st.sampled_from(
    ["OK", "it's", "a\\b", "[3] button 'x'", "漢字", "&lt;b&gt;", "", "  ", "x" * 300, "Action: ```wait```"]
)
tags = st.sampled_from(
    "div p span a button input select option table tr td th ul li label details summary dialog iframe svg text form "
    "textarea h2 img video canvas slot custom-tag fieldset legend template b br frame object marquee".split()
)
attributes = st.sampled_from(
    [
        "", 'href="#x"', 'href="/p"', 'href="javascript:void 0"', 'role="button"', 'role="row"', 'role=" "', 'role="nonsense"',
        'role="combobox"', 'role="grid"', 'aria-label="it\'s"', 'aria-labelledby="a a b"', 'id="a"', 'id="b"', "hidden", "inert",
        'style="display:contents"', 'style="position:fixed;inset:0"', 'style="opacity:0"', 'style="transform:rotate(40deg)"',
        'style="position:absolute;top:-50px"', 'type="checkbox"', 'type="file"', 'type="date"', 'type="hidden"', "contenteditable",
        'onclick="this.remove()"', 'onclick="document.body.innerHTML=1"', "onclick=\"location='/p'\"", 'onclick="alert(1)"',
        'onclick="window.open(\'/p\')"', 'onclick="throw 1"', 'for="a"', "open", 'tabindex="0"', "multiple", 'value="v"', "disabled",
        'src="/p"', 'srcdoc="<button>in</button>"', 'target="_blank"', 'onfocus="this.remove()"',
    ]
)  # fmt: skip
element = st.deferred(
    lambda: st.one_of(
        words,
        st.builds(
            lambda tag, given, inside: f"<{tag} {' '.join(given)}>{''.join(inside)}</{tag}>",
            tags, st.lists(attributes, max_size=3), st.lists(element, max_size=4),
        ),
    )
)  # fmt: skip
scripts = st.sampled_from(
    [
        "", "for (const n of ['observe', 'place']) try { __wevo[n] = () => null } catch {}", "Array.prototype.toJSON = () => 1", "Element.prototype.getAttribute = null", "window.__wevo = 1", "document.body.remove()",
        "document.open(); document.write('<p>new'); document.close()", "delete Object.prototype.toString", "window.Node = undefined",
        "setInterval(() => document.body && document.body.append('x'), 1)", "history.pushState(1, '', '/other')",
        "Object.defineProperty(HTMLElement.prototype, 'innerText', {get() { throw 1 }})", "document.title = \"it's\\n[9]\"",
        "for (const e of document.querySelectorAll('div')) try { e.attachShadow({mode: 'closed'}).innerHTML = '<button>s</button>' } catch {}",
    ]
)  # fmt: skip
pages = st.builds(
    lambda inside, script: "".join(inside) + f"<script>{script}</script>", st.lists(element, max_size=6), scripts
)
numbers = st.integers(-1, 12)
replies = st.one_of(
    st.builds(lambda n: f"Action: ```click [{n}]```", numbers),
    st.builds(lambda n, w: f"Action: ```type [{n}] [{w}] [1]```", numbers, words),
    st.builds(lambda n, w: f"Action: ```select [{n}] [{w}]```", numbers, words),
    st.builds(lambda n, way: f"Action: ```scroll [{n}] [{way}]```", numbers, st.sampled_from(["up", "down"])),
    st.sampled_from(
        ["Action: ```goback```", "Action: ```restart```", "Action: ```tab [1]```", "Action: ```scroll [down]```"]
    ),
    st.builds(
        lambda w: f"Action: ```goto [{w}]```", st.sampled_from([r"http://\[x", "http://site/p", "x", "http://℀.com/"])
    ),
    st.text(max_size=20),
)


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(page=pages, said=st.lists(replies, min_size=3, max_size=3))
async def test_no_exception_leaves_an_episode(chromium, page, said):
    left = iter(said)
    policy = ModelPolicy(Scripted(lambda _: next(left)), SMOKE.policy.model_copy(update={"reply": "generate"}))
    browser = SMOKE.browser.model_copy(update={"deadline_ms": 400, "goto": True})
    with LocalSite({"p": page}) as site:
        env = BrowserEnv(chromium, site, browser, SMOKE.observation)
        try:
            one = await rollout(policy, env, Task(suite="site", name="p", seed=0), max_steps=3)
        finally:
            await env.close()
    assert one.ended in ("limit", "stuck", "stop") and len(one.steps) in (1, 2, 3)
    for seen in [*(step.observation for step in one.steps), one.final]:
        assert seen.text == "" or is_page(seen.text)
    assert len(chromium.contexts) == 0

"""`wevo view` in a real Chromium: filters, keys, hostile page text, two runs side by side, and what is refused."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from urllib.parse import urlencode

import psutil
import pytest
import pytest_asyncio
from local_site import LocalSite
from stand_ins import SMOKE, did, seen, walk
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from wevo_nb import view
from wevo_nb.browser import BrowserEnv
from wevo_nb.runs import write_json, write_jsonl
from wevo_nb.schema import Candidate, Step, Task, Trajectory, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script><b>bold</b> &amp; {{ 7 * 7 }}'
FORM = "[1] checkbox 'News'\n[2] button 'OK'"
CHECKED = "[1] checkbox 'News' checked: true\n[2] button 'OK'"
DREAMT = "[1] checkbox 'News' checked: true\n[2] button 'Thanks'"
COMMAND = (sys.executable, "-m", "wevo_nb.cli", "view")


def of(name="click-link", seed=0, goal="") -> Task:
    return Task(suite="miniwob", name=name, seed=seed, split="test_seeds", goal=goal or f"Click number {seed}")


def looked(page: str, after: str) -> Trajectory:
    """Two steps; at the first the policy looked ahead, and took the second of two candidates."""
    chosen, other = "Thought: tick it. Action: ```click [1]```", "Thought: press. Action: ```click [2]```"
    candidates = (
        Candidate(reply=other, imagined=("(the episode ends, P(success) = 0.02)",), score=0.02),
        Candidate(reply=chosen, imagined=(DREAMT,), score=0.75),
    )
    one = walk(
        of("form", 3, "Tick News"), page, "click [1]", after, "click [2]", "", reward=1.0, policy="zero_shot+wmla_d1"
    )
    decision = did("click [1]").model_copy(update={"reply": chosen, "candidates": candidates})
    verdict = Verdict(outcome="success", judge="reward", reason="reward 1.00")
    steps = (one.steps[0].model_copy(update={"decision": decision}), one.steps[1])
    return one.model_copy(update={"steps": steps, "verdict": verdict})


def make_runs(outputs):
    """Run `first`: 120 and 3 episodes of zero_shot, one of a look-ahead arm. Run `second`: the 3 tasks, all solved."""
    hostile = walk(
        of("evil", 7, EVIL), seen(f"[1] link '{EVIL}'", title=EVIL, url="javascript:window.hacked=1", note=EVIL),
        "click [1]", seen(EVIL), policy="zero_shot", reward=0.0, success="failure",
    )  # fmt: skip
    said = did("click [1]").model_copy(update={"reply": EVIL, "action": None, "error": EVIL})
    hostile = hostile.model_copy(
        update={
            "steps": (hostile.steps[0].model_copy(update={"decision": said}),),
            "verdict": Verdict(outcome="failure", judge=EVIL, reason=EVIL), "error": EVIL,
        }
    )  # fmt: skip
    many = [
        walk(of(seed=i), FORM, "click [2]", "", reward=0.0, policy="zero_shot", success="failure") for i in range(120)
    ]
    three = [
        walk(of("form", i), FORM, "click [1]", CHECKED, reward=0.0, policy="zero_shot", success="failure")
        for i in range(3)
    ]
    solved = [
        walk(of("form", i), FORM, "click [2]", "", reward=1.0, policy="zero_shot", success="success") for i in range(3)
    ]
    for run, rows in (("first", [*many, *three, hostile]), ("second", solved)):
        write_jsonl(outputs / run / "05_wmla" / "zero_shot" / "trajectories.jsonl", rows)
        write_json(outputs / run / "run.json", {"profile": "smoke", "created": "2026-11-30T08:00:00+00:00"})
    write_jsonl(outputs / "first" / "05_wmla" / "zero_shot+wmla_d1" / "trajectories.jsonl", [looked(FORM, CHECKED)])


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    make_runs(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEVO_OUTPUTS", str(folder))
        yield folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(outputs):
    """The pages of both runs, served."""
    sockets = bind_sockets(0, view.ADDRESS)
    number = sockets[0].getsockname()[1]
    server = HTTPServer(view.application(view.Runs(["first", "second"]), number))
    server.add_sockets(sockets)
    yield number
    server.stop()
    await server.close_all_connections()


@pytest_asyncio.fixture(loop_scope="module")
async def page(chromium, port):
    """A page of Chromium; what fails in it, and what it asks of anybody else, fails the test."""
    context = await chromium.new_context(viewport={"width": 1200, "height": 800})
    opened, problems = await context.new_page(), []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("dialog", lambda dialog: problems.append(dialog.message))
    opened.on("console", lambda told: problems.append(told.text) if told.type == "error" else None)
    opened.on("request", lambda asked: problems.append(asked.url) if f":{port}/" not in asked.url else None)
    yield opened
    await context.close()
    assert problems == []


def address(port: int, path: str = "/", **query) -> str:
    return f"http://127.0.0.1:{port}{path}?{urlencode(query)}"


async def ask(port: int, path: str, host: str | None = None) -> tuple[int, dict, str]:
    """A request as it stands: nothing in the path is tidied up on the way."""

    def send():
        connection = http.client.HTTPConnection(view.ADDRESS, port, timeout=20)
        connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read().decode()

    return await asyncio.to_thread(send)


async def rows(page) -> list[str]:
    return await page.locator(".rows tbody a").all_inner_texts()


# -- the list


@pytest.mark.browser
async def test_filters_narrow_the_list_and_tell_what_else_there_is(page, port):
    await page.goto(address(port))
    assert await page.locator(".counts").inner_text() == "failure 124\nsuccess 1\n125 in the run"
    assert len(await rows(page)) == 100  # a page of the list
    arms = await page.get_by_label("arm", exact=True).locator("option").all_inner_texts()
    assert arms == ["any", "zero_shot (124)", "zero_shot+wmla_d1 (1)"]
    await page.get_by_label("task family").select_option("form")
    await page.wait_for_url("**family=form**")
    assert await rows(page) == ["form #0", "form #1", "form #2", "form #3"]
    await page.get_by_label("outcome", exact=True).select_option("success")
    await page.wait_for_url("**outcome=success**")
    assert await rows(page) == ["form #3"]
    assert await page.get_by_label("outcome", exact=True).locator("option").all_inner_texts() == [
        "any", "success (1)", "failure (3)",
    ]  # fmt: skip
    await page.get_by_role("link", name="clear").click()
    await page.wait_for_url(lambda url: "family" not in url)
    assert len(await rows(page)) == 100


@pytest.mark.browser
async def test_the_keys_of_the_list(page, port):
    await page.goto(address(port))
    focused = lambda: page.evaluate("document.activeElement.innerText")  # noqa: E731
    await page.keyboard.press("j")
    assert await focused() == "click-link #0"
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    assert await focused() == "click-link #1"
    await page.keyboard.press("ArrowRight")
    await page.wait_for_url("**first=100**")
    assert len(await rows(page)) == 25
    await page.keyboard.press("ArrowLeft")
    await page.wait_for_url("**first=0**")
    await page.keyboard.press("/")
    await page.keyboard.type("form 2j")  # in the field a letter is a letter
    await page.keyboard.press("Backspace")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**q=form+2**")
    assert await rows(page) == ["form #2"]
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/trajectory?**")
    assert await page.locator("h1").inner_text() == "form #2 ✗ failure"


@pytest.mark.browser
async def test_the_keys_are_shown_and_the_theme_can_be_switched(page, port):
    await page.emulate_media(color_scheme="light")
    await page.goto(address(port))
    dialog, background = page.locator("#keys"), "getComputedStyle(document.body).backgroundColor"
    await page.keyboard.press("?")
    assert await dialog.is_visible() and "next, previous trajectory" in await dialog.inner_text()
    await page.keyboard.press("Escape")
    assert not await dialog.is_visible()
    light = await page.evaluate(background)
    await page.keyboard.press("t")
    dark = await page.evaluate(background)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(22, 24, 28)")
    await page.reload()
    assert await page.evaluate(background) == dark  # it is remembered
    await page.get_by_role("button", name="light / dark").click()
    await page.emulate_media(color_scheme="dark")
    assert await page.evaluate(background) == light


# -- one trajectory


@pytest.mark.browser
async def test_a_trajectory_has_its_pages_thoughts_actions_ends_and_verdict(page, port):
    await page.goto(address(port, arm="zero_shot+wmla_d1"))
    await page.locator(".rows a").click()
    await page.get_by_role("heading", name="form #3").wait_for()
    steps = page.locator(".wevo-step")
    titles = await steps.locator(".wevo-title").all_inner_texts()
    assert titles == ["1. click [1] checkbox 'News'", "2. click [2] button 'OK'", "End: done, reward 1.00"]
    assert await steps.nth(0).locator(".wevo-page pre").inner_text() == FORM
    assert "tick it." in await steps.nth(0).locator(".wevo-reply").inner_text()
    assert "ended the episode" in await steps.nth(1).locator(".wevo-reply").inner_text()
    assert "✓ success by reward: reward 1.00" in await steps.nth(2).inner_text()
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    assert await page.evaluate("document.activeElement.id") == "step-2"
    await page.keyboard.press("u")
    await page.wait_for_url(lambda url: "/trajectory" not in url)
    assert await rows(page) == ["form #3"]  # the list it was opened from
    await page.locator(".rows a").click()
    await page.get_by_role("heading", name="form #3").wait_for()
    await page.keyboard.press("/")
    await page.wait_for_url("**#search")
    assert "arm=zero_shot" in page.url and await page.evaluate("document.activeElement.type") == "search"


@pytest.mark.browser
async def test_what_was_imagined_stands_beside_what_really_came(page, port):
    await page.goto(address(port, arm="zero_shot+wmla_d1"))
    await page.locator(".rows a").click()
    candidates = page.locator(".wevo-step").first.locator(".wevo-candidate")
    assert await candidates.count() == 2
    assert await candidates.nth(0).locator("pre").all_inner_texts() == ["(the episode ends, P(success) = 0.02)"]
    chosen = candidates.nth(1)
    assert await chosen.locator("pre").all_inner_texts() == [DREAMT, CHECKED]
    assert await chosen.locator("mark.wrong").all_inner_texts() == ["[2] button 'Thanks'"]
    assert await chosen.locator("mark.missed").all_inner_texts() == ["[2] button 'OK'"]
    told = await chosen.inner_text()
    assert "2, chosen" in told and "1 of 2 lines came" in told and "0.75" in told


@pytest.mark.browser
async def test_before_and_after_stay_in_the_filtered_list(page, port):
    await page.goto(address(port, family="form", arm="zero_shot"))
    await page.locator(".rows a").first.click()
    await page.get_by_role("heading", name="form #0").wait_for()
    for title in ("form #1", "form #2"):
        await page.keyboard.press("ArrowRight")
        await page.get_by_role("heading", name=title).wait_for()
    assert await page.locator("a[rel=next]").count() == 0
    await page.keyboard.press("ArrowLeft")
    await page.get_by_role("heading", name="form #1").wait_for()


@pytest.mark.browser
async def test_what_a_page_says_is_text_wherever_it_stands(page, port):
    await page.goto(address(port, q="evil"))
    assert EVIL in await page.locator(".rows .goal").inner_text()
    await page.locator(".rows a").click()
    text = await page.locator("main").inner_text()
    # title, note, page, thought, error, last page, judge and reason, error of the episode, goal
    assert text.count(EVIL) >= 9
    assert await page.locator("main img, main script, main b b, main a[href^=javascript]").count() == 0
    assert await page.evaluate("window.hacked") is None


@pytest.mark.browser
async def test_a_kept_picture_stands_beside_its_text(chromium, page, port, outputs):
    """A real episode with browser.screenshots; the same picture twice is one file."""
    with LocalSite({"door": "<!doctype html><title>Door</title><button>Open</button>"}) as site:
        params = SMOKE.browser.model_copy(update={"screenshots": True, "viewport": (300, 200)})
        env = BrowserEnv(chromium, site, params, SMOKE.observation, outputs / "second" / "01_collect")
        first = await env.reset(Task(suite="site", name="door", seed=0))
        after = await env.step(did("wait").action)
        await env.close()
    assert re.fullmatch(r"[0-9a-f]{16}\.png", first.screenshot) and after.screenshot == first.screenshot
    kept = outputs / "second" / "01_collect" / "screenshots" / first.screenshot
    assert kept.read_bytes().startswith(b"\x89PNG")
    steps = (Step(observation=first, decision=did("wait")),)
    gone = after.model_copy(update={"screenshot": "0" * 16 + ".png"})  # nobody kept this one
    one = Trajectory(task=of("door"), policy="p", environment="browser", steps=steps, final=gone, ended="limit")
    write_jsonl(outputs / "second" / "01_collect" / "trajectories.jsonl", [one])
    await asyncio.sleep(view.REFRESH_S)
    await page.goto(address(port, run="second", stage="01_collect"))
    await page.locator(".rows a").click()
    pictures = page.locator(".wevo-page img")
    assert await pictures.count() == 1
    await pictures.scroll_into_view_if_needed()
    await page.wait_for_function("document.querySelector('.wevo-page img').naturalWidth == 300")


# -- side by side


@pytest.mark.browser
async def test_two_runs_side_by_side_on_the_same_task(page, port):
    await page.goto(address(port, "/pairs"))
    assert await page.get_by_label("left").input_value() == "first/05_wmla/zero_shot"
    assert await page.get_by_label("right").input_value() == "second/05_wmla/zero_shot"
    told = await page.locator(".counts").inner_text()
    assert told.split("\n") == ["both succeed 0", "left alone 0", "right alone 3", "neither 0", "3 pairs"]
    await page.get_by_label("show").select_option("lost")
    await page.wait_for_url("**show=lost**")
    assert await page.get_by_text("There is no such pair.").is_visible()
    await page.get_by_label("show").select_option("won")
    await page.wait_for_url("**show=won**")
    await page.locator(".rows a").nth(1).click()
    await page.wait_for_url("**/compare?**")
    heads = await page.locator("main h2").all_inner_texts()
    assert heads == ["zero_shot ✗ failure", "zero_shot ✓ success"]
    first, second = await page.locator(".row").nth(0).locator(".wevo-title").all_inner_texts()
    assert (first, second) == ("1. click [1] checkbox 'News'", "1. click [2] button 'OK'")
    boxes = [await page.locator(".row").first.locator(".side").nth(i).bounding_box() for i in range(2)]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]


@pytest.mark.browser
async def test_the_same_task_of_another_arm_is_one_click_away(page, port):
    await page.goto(address(port, run="second", family="form"))
    await page.locator(".rows a").first.click()
    await page.get_by_text("the same task elsewhere (1), side by side").click()
    await page.locator(".same a").click()
    await page.wait_for_url("**/compare?**")
    assert await page.locator("main h2").all_inner_texts() == ["zero_shot ✓ success", "zero_shot ✗ failure"]


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1600])
async def test_no_page_is_wider_than_the_window(page, port, width):
    await page.set_viewport_size({"width": width, "height": 800})
    await page.goto(address(port, q="evil"))
    trajectory = await page.locator(".rows a").get_attribute("href")
    await page.goto(address(port, run="second", family="form"))
    await page.locator(".rows a").first.click()
    await page.get_by_text("the same task elsewhere (1), side by side").click()
    compare = await page.locator(".same a").get_attribute("href")
    assert compare.startswith("/compare?")
    for path in ("/", trajectory, "/pairs", compare):
        await page.goto(f"http://127.0.0.1:{port}{path}")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


# -- what is refused


SECRETS = [
    "/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/records.css/../../view.py", "/picture/../run.json",
    "/picture/%2e%2e%2frun.json", "/picture/0000000000000000.png", "/view.py", "/static/records.css",
    "/trajectory?run=first&ref=../second/05_wmla/zero_shot/trajectories.jsonl:0",
    "/trajectory?run=first&ref=/etc/passwd:0", "/trajectory?run=first&ref=run.json:0", "/trajectory?run=../first&ref=x",
    "/trajectory?run=first&ref=05_wmla/zero_shot/trajectories.jsonl:1", "/?run=..", "/?run=/etc", "/pairs?left=/etc",
    "/compare?left=first/05_wmla/zero_shot/trajectories.jsonl:0&right=first//etc/passwd:0", "/compare",
]  # fmt: skip


@pytest.mark.parametrize("path", SECRETS)
async def test_nothing_but_indexed_trajectories_is_read(port, path):
    status, headers, text = await ask(port, path)
    assert status == 404 and "root:" not in text and "created" not in text and "import" not in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]


async def test_another_host_gets_nothing(port):
    """A page of the web whose name was made to lead to this machine sends its own name."""
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}", "localhost:1"):
        status, _, text = await ask(port, "/", host)
        assert status == 403 and "click-link" not in text
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        assert (await ask(port, "/", host))[0] == 200


async def test_every_answer_forbids_foreign_scripts_and_frames(port):
    for path in ("/", "/pages.js", "/records.css", "/pairs", "/nowhere"):
        headers = (await ask(port, path))[1]
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin" and "Server" not in headers


async def test_strange_numbers_and_names_are_no_error(port):
    for path in ("/?first=-1", "/?first=99999999999", "/?first=x", "/?stage=", "/?arm=nobody", "/?outcome=%3Cb%3E"):
        assert (await ask(port, path))[0] == 200
    assert (await ask(port, "/pairs?show=x"))[0] == 404


# -- the command


def start(outputs, *words: str) -> subprocess.Popen:
    environment = {**os.environ, "WEVO_OUTPUTS": str(outputs), "COLUMNS": "200"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *words], env=environment, **pipes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_listens_on_this_machine_alone_and_ends_cleanly(outputs, number):
    process = start(outputs, "first", "second", "--port", "0", "--no-open")
    try:
        found, opened = process.stdout.readline(), process.stdout.readline()
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", opened)[1])
        assert re.match(r"12\d trajectories of first, second in \d", found)
        listening = [c.laddr for c in psutil.Process(process.pid).net_connections() if c.status == psutil.CONN_LISTEN]
        assert [(where.ip, where.port) for where in listening] == [("127.0.0.1", port)]
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    with socket.socket() as again:
        assert again.connect_ex(("127.0.0.1", port)) != 0


async def test_a_run_that_is_not_there_and_a_port_that_is_taken(outputs):
    process = start(outputs, "first", "nobody", "--no-open")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and "there is no run 'nobody'" in err and "Traceback" not in err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        process = start(outputs, "first", "--port", port, "--no-open")
        out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and f"port {port} cannot be taken" in err and "--port" in err


async def test_a_run_without_trajectories_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path))
    write_json(tmp_path / "empty" / "run.json", {"profile": "smoke", "created": "2026-11-30T08:00:00+00:00"})
    sockets = bind_sockets(0, view.ADDRESS)
    number = sockets[0].getsockname()[1]
    server = HTTPServer(view.application(view.Runs(["empty"]), number))
    server.add_sockets(sockets)
    assert "No trajectory here yet" in (await ask(number, "/"))[2]
    assert (await ask(number, "/pairs"))[0] == 404
    server.stop()
    await server.close_all_connections()

"""The five local sites: their tasks and splits, what counts as right, an own state for every episode, clean ends.

The servers and the Chromium are real; the sites are built into the cache on first use (half a minute).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from pathlib import Path

import psutil
import pytest
from stand_ins import did
from typer.testing import CliRunner

from wevo_nb.answers import matches
from wevo_nb.browser import BrowserEnv
from wevo_nb.cli import app
from wevo_nb.params import ParamsError, load_params
from wevo_nb.rollout import rollout
from wevo_nb.schema import Task
from wevo_nb.tasks.sites import SITES, Sites, build, servers
from wevo_nb.tasks.sites.oracle import Oracle
from wevo_nb.tasks.sites.templates import CAP, HELD_OUT_SITES, Opened, Reached, World

PARAMS = load_params("study", {"collect.suite": "sites"}).params  # the whole window, as base.yaml has it for the sites
ADDRESS = re.compile(r"(\w+) +(http://127\.0\.0\.1:\d+/)")
browser = pytest.mark.browser
in_a_loop = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", autouse=True)
def built():
    return build.world()


@pytest.fixture(scope="module")
def suite():
    with Sites() as one:
        yield one


def make(chromium, suite) -> BrowserEnv:
    return BrowserEnv(chromium, suite, PARAMS.browser, PARAMS.observation)


def task_of(suite: Sites, name: str, number: int = 0) -> Task:
    return suite.items[name, number].task


def mine() -> list[str]:
    """Records of servers that this process started."""
    records = [path.read_text() for path in (build.cache() / "running").glob("*.json")]
    return sorted(record for record in records if f'"owner": [{os.getpid()},' in record)


# -- what is right


@pytest.mark.parametrize(
    "given, wanted, right",
    [
        ("3426354", 3426354, True),
        ("Its population is 3,426,354.", 3426354, True),
        ("3,426,355", 3426354, False),
        ("34", 3426354, False),
        ("£12.50", 12.5, True),
        ("12.5 GBP", 12.5, True),
        ("12", 12.5, False),
        ("-3.9", -3.9, True),
        ("3.9", -3.9, False),
        ("7 or 8", 7, False),
        ("there are 7 rows", 7, True),
        ("seven", 7, False),
        ("Berlin", "Berlin", True),
        ("the capital is BERLIN!", "Berlin", True),
        ("East Berlin", "Berlin", False),
        ("Berlingen", "Berlin", False),
        ("not Berlin", "Berlin", False),
        ("Sao Paulo", "São Paulo", True),
        ("", "Berlin", False),
        ("The Golden Harbour", "The Golden Harbour", True),
        ("Golden Harbour Two", "The Golden Harbour", False),
        ("March 30, 2021", "March 30, 2021", True),
        ("2.0", "2.0.43", False),
    ],
)
def test_an_answer_is_right_however_it_is_said_and_wrong_where_it_says_more(given, wanted, right):
    assert matches(given, wanted, question='What is the capital of "Germany"?') is right


def test_numbers_and_names_of_the_question_may_be_said_again_but_not_both_candidates():
    assert matches("On 2014-01-05 it was 12.8", 12.8, 'What was the temp_max on "2014-01-05"?')
    assert not matches("2014", 12.8, 'What was the temp_max on "2014-01-05"?')
    question = 'Which city has more inhabitants, "Kano" or "Lima"?'
    assert matches("The city is Lima", "Lima", question, others=("Kano",))
    assert not matches("Kano or Lima", "Lima", question, others=("Kano",))


# -- tasks and splits


def test_there_are_enough_tasks_and_every_goal_reads_back_into_its_slots():
    suite = Sites()
    tasks = suite.tasks()
    warm_up = [item for item in suite.items.values() if isinstance(item.wanted, Opened)]
    assert len(tasks) - len(warm_up) >= 600 and len({task.goal for task in tasks}) == len(tasks)
    assert max(Counter(task.name for task in tasks).values()) <= CAP <= 40
    assert {task.site for task in tasks} >= {*SITES, "issues+tables", "issues+shop", "code+issues"}
    for item in suite.items.values():
        slots = item.template.slots(item.task.goal)
        assert item.template.goal.format(**slots) == item.task.goal


def test_held_out_is_held_out():
    suite = Sites()
    by_split = defaultdict(list)
    for item in suite.items.values():
        by_split[item.task.split].append(item)
    assert {"train", "test_seeds", "test_tasks", "test_sites"} == set(by_split)
    names = {split: {item.task.name for item in found} for split, found in by_split.items()}
    assert names["test_seeds"] == names["train"] and not names["train"] & (names["test_tasks"] | names["test_sites"])
    for split, found in by_split.items():
        for item in found:
            assert (split == "test_sites") == bool(set(item.template.sites) & set(HELD_OUT_SITES))
    assert 0.15 < len(by_split["test_seeds"]) / len(by_split["train"] + by_split["test_seeds"]) < 0.45


def test_a_draw_rotates_through_a_split_and_repeats_nothing():
    suite = Sites()
    train = [task for task in suite.tasks() if task.name == "tables-capital" and task.split == "train"]
    assert suite.draw("tables-capital", "train", 1000, 500) and len(train) > 5
    first = suite.draw("tables-capital", "train", 3, 4)
    assert first == (train * 2)[3:7] and suite.draw("tables-capital", "train", 3 + len(train), 4) == first
    assert {task.split for task in suite.draw("docs-class", "test_tasks", 0, 3)} == {"test_sites"}
    assert suite.draw("shop-stock", "train", 0, 3) == []
    with pytest.raises(ParamsError, match="no template 'tables-capitol'.*tables-capital"):
        suite.draw("tables-capitol", "train", 0, 1)


def test_answers_that_everybody_knows():
    world = World(build.world())
    facts = {slots["country"]: answer for slots, answer in Sites().items["tables-capital", 0].template.make(world)}
    assert (facts["Germany"], facts["Kenya"], facts["Peru"]) == ("Berlin", "Nairobi", "Lima")
    rows = "select count(*) from {}"
    counts = {name: world.query("tables/data.db", rows.format(name))[0][0] for name in ("cars", "weather", "stocks")}
    assert counts == {"cars": 406, "weather": 1461, "stocks": 560}
    dates = {slots["version"]: answer for slots, answer in Sites().items["docs-release", 0].template.make(world)}
    assert dates["2.0.44"] == "October 10, 2025"


# -- episodes


@browser
@in_a_loop
async def test_every_site_begins_the_same_in_two_runs_under_its_own_name(chromium, suite):
    """Other servers on other ports, and the page is the same to the letter, dates included."""
    names = ("tables-capital", "shop-price", "issues-owner", "code-author", "docs-class", "multi-order")
    with Sites() as again:
        for name in names:
            seen = []
            for one in (suite, again):
                environment = make(chromium, one)
                seen.append(await environment.reset(task_of(one, name)))
                await environment.close()
            assert seen[0] == seen[1] and seen[0].text.count("\n") > 1
            assert "127.0.0.1" not in seen[0].url and seen[0].goal == task_of(suite, name).goal
            assert seen[0].note == ""


@browser
@in_a_loop
async def test_relative_dates_stand_still(chromium, suite):
    """The clock of the servers is NOW, whatever the time is: the start page of the wiki is of January."""
    environment = make(chromium, suite)
    seen = await environment.reset(task_of(suite, "issues-owner"))
    await environment.close()
    assert "link '5 months ago'" in seen.text


@browser
@in_a_loop
async def test_what_an_episode_changes_no_other_sees_and_the_next_finds_undone(chromium, suite):
    task = task_of(suite, "shop-basket")
    mine, other = make(chromium, suite), make(chromium, suite)
    first = await mine.reset(task)
    same = await other.reset(task)
    assert first.text == same.text and mine.visit.hosts != other.visit.hosts
    assert await mine.visit.answer(mine.page, "done") == 0.0

    class Kept(BrowserEnv):
        async def reset(self, task):
            return first

    mine.__class__ = Kept
    done = await rollout(Oracle(), mine, task, max_steps=12)
    assert done.final.reward == 1.0
    assert await other.visit.answer(other.page, "done") == 0.0
    await mine.close()
    await other.close()
    for _ in range(2):  # both instances, in whichever order they are leased
        again = make(chromium, suite)
        assert (await again.reset(task)).text == first.text
        assert await again.visit.answer(again.page, "done") == 0.0
        await again.close()


@browser
@in_a_loop
async def test_too_much_is_not_the_state_that_was_asked_for(chromium, suite):
    """Twice into the basket is not once, and a question wants the answer, not `done`."""
    environment = make(chromium, suite)
    task = task_of(suite, "shop-basket")
    done = await rollout(Oracle(), environment, task, max_steps=12)
    [button] = re.findall(r"\[(\d+)\] button 'Add to basket'", done.final.text)
    await environment.step(did(f"click [{button}]").action)
    assert done.final.reward == 1.0 and (await environment.step(did("stop [done]").action)).reward == 0.0
    await environment.reset(task_of(suite, "tables-capital"))
    assert (await environment.step(did("stop [done]").action)).reward == 0.0
    await environment.close()


@browser
@in_a_loop
async def test_a_warm_up_is_over_when_the_page_is_open_and_not_before(chromium, suite):
    environment = make(chromium, suite)
    seen = await environment.reset(task_of(suite, "shop-add"))
    assert (await environment.step(did("stop [done]").action)).reward == 0.0
    for name in ("Add to basket", "View basket"):
        assert (seen.done, seen.reward) == (False, None)
        number = re.search(rf"\[(\d+)\] (?:button|link) '{name}'", seen.text)[1]
        seen = await environment.step(did(f"click [{number}]").action)
    await environment.close()
    assert (seen.done, seen.reward) == (True, 1.0)


@browser
@in_a_loop
async def test_a_server_that_ended_is_replaced(chromium, suite):
    environment = make(chromium, suite)
    task = task_of(suite, "issues-owner")
    await environment.reset(task)
    address = next(iter(environment.visit.hosts))
    server = next(one for one in suite.started if one.address == address)
    server.process.kill()
    server.process.wait()
    await environment.close()
    for _ in range(2):
        assert (await rollout(Oracle(), environment, task, max_steps=12)).final.reward == 1.0
        await environment.close()


# -- starting and ending


def test_all_start_within_ten_seconds_and_end_with_nothing_left():
    began = time.monotonic()
    with Sites() as one:
        took = time.monotonic() - began
        processes = [psutil.Process(server.process.pid) for server in one.started]
        scratch = [server.scratch for server in one.started]
        assert sorted(server.site for server in one.started) == sorted(SITES)
    assert took < 10
    assert not any(process.is_running() for process in processes) and not any(path.exists() for path in scratch)


def test_the_servers_of_a_killed_run_end_and_its_records_go(tmp_path):
    """kill -9 of the owner: every server ends, the next start removes what the record names, and nothing else."""
    program = "import sys, time\nfrom wevo_nb.tasks.sites import Sites\nwith Sites() as s:\n"
    program += "    print(*[x.process.pid for x in s.started], flush=True)\n    time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        records = [build.cache() / "running" / f"{pid}.json" for pid in pids]
        scratch = [Path(json.loads(path.read_text())["scratch"]) for path in records]
        bystander = json.loads(records[0].read_text())
        bystander["server"] = [os.getpid(), 1.0]  # this process has that id, and another start time
        foreign = build.cache() / "running" / "foreign.json"
        foreign.write_text(json.dumps(bystander))
        owner.send_signal(signal.SIGKILL)
    assert len(pids) == 5
    servers.end_leftovers()
    end = time.monotonic() + 10
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not any(path.exists() for path in [*records, *scratch, foreign])


@pytest.mark.parametrize(
    "site, why",
    [("issues", "does not serve its first page .HTTP Error 500"), ("nowhere", "ended before .*ModuleNotFoundError")],
)
def test_a_site_that_does_not_start_says_why(tmp_path, site, why):
    """The end of the server's log stands in the message, and no server is left."""
    (tmp_path / site).mkdir()
    before = mine()
    with pytest.raises(build.SitesError, match=f"(?s)the site '{site}' {why}"):
        servers.start([site], tmp_path)
    assert mine() == before


def test_the_command_serves_until_it_is_told_to_stop():
    wevo = CliRunner()
    assert "up" in wevo.invoke(app, ["sites", "--help"]).output
    try:
        shown = wevo.invoke(app, ["sites", "up"])
        assert shown.exit_code == 0, shown.output
        addresses = ADDRESS.findall(shown.output)
        assert [site for site, _ in addresses] == sorted(SITES)
        for _, address in addresses:
            with urllib.request.urlopen(address, timeout=30) as page:
                assert page.status == 200 and page.read()
        assert ADDRESS.findall(wevo.invoke(app, ["sites", "up"]).output) == addresses  # nothing is started twice
        with Sites():  # a run beside it leaves it alone
            assert ADDRESS.findall(wevo.invoke(app, ["sites", "status"]).output) == addresses
    finally:
        ended = wevo.invoke(app, ["sites", "down"])
    assert "5 sites stopped" in ended.output
    assert "none is served" in wevo.invoke(app, ["sites", "status"]).output


def test_a_list_of_tasks_does_not_build_the_sites(monkeypatch, tmp_path):
    monkeypatch.setenv("WEVO_CACHE", str(tmp_path))
    with pytest.raises(build.SitesError, match="not built yet.*wevo sites up"):
        Sites().tasks()
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named_with_the_cure(monkeypatch):
    monkeypatch.setattr(build, "PACKAGES", ["datasette", "no-such-package"])
    with pytest.raises(build.SitesError, match="'no-such-package' is missing.*make env"):
        build.fingerprint()


def test_a_state_is_read_from_the_database_and_not_from_the_answer():
    states = [item for item in Sites().items.values() if isinstance(item.wanted, Reached)]
    assert len(states) > 100
    folders = {site: build.world() / site for site in SITES}
    assert not any(item.right("done", "http://shop/", folders) for item in states)

"""benchmarks/lookahead.py: its critical path, its server, its pages and what it writes, on small cases known before."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest
from stand_ins import ONE_THREAD, SMOKE, did, seen, task

from wevo_nb.endpoint import EndpointModel
from wevo_nb.llm import Request
from wevo_nb.models import Engine
from wevo_nb.schema import Candidate
from wevo_nb.sections import RoleParams
from wevo_nb.transitions import Situation, Transition

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import lookahead
import model_server

LATENCY = 0.05


@pytest.fixture(scope="module")
def url():
    with model_server.model_server(LATENCY) as address:
        yield address


@pytest.mark.parametrize(
    ("k", "depth", "calls"), [(1, 0, 1), (2, 1, 5), (3, 1, 6), (3, 2, 9), (3, 3, 12), (5, 1, 8), (5, 3, 14)]
)
async def test_the_critical_path_is_as_many_calls_as_the_real_look_ahead_makes_one_after_another(
    k, depth, calls, url, monkeypatch
):
    """Worked out by hand: k candidates, an outcome and a page a step, the policy between two steps, the score."""
    rounds, call = [], EndpointModel.__call__

    async def counted(self, requests):
        rounds.append(len(requests))
        return await call(self, requests)

    monkeypatch.setattr(EndpointModel, "__call__", counted)
    async with lookahead.looking_ahead(url, k, depth) as policy:
        decision = await policy.act(task(goal="Find the exit."), (), seen(model_server.room(0)))
    lookahead.check(decision, k, depth)
    assert lookahead.critical_path(k, depth) == calls == len(rounds)
    assert rounds == [1] * k + [k] * (calls - k)


async def test_the_server_takes_its_time_for_each_call_and_no_longer_for_many_at_once(url):
    model = EndpointModel(RoleParams(engine="openai", base=model_server.MODEL, url=url), SMOKE.llm)
    asked = [Request(messages=({"role": "user", "content": "hello"},))] * 16
    await model(asked)  # opens the connections
    started = time.perf_counter()
    replies = await model(asked)
    assert LATENCY <= time.perf_counter() - started < 16 * LATENCY  # one after another they take more
    assert [reply.text for [reply] in replies] == ["Thought: I take another door. Action: ```click [2]```"] * 16
    await model.client.close()


def test_less_than_what_is_timed_is_no_measurement():
    decision = did("click [2]").model_copy(update={"candidates": (Candidate(reply="a", imagined=("page",)),) * 2})
    lookahead.check(decision, 2, 1)
    with pytest.raises(RuntimeError, match=r"k 3, depth 1: imagined \[1, 1\] steps; no problem told"):
        lookahead.check(decision, 3, 1)
    with pytest.raises(RuntimeError, match="the server is gone"):
        lookahead.check(decision.model_copy(update={"fell_back": "the server is gone"}), 2, 1)


def test_a_page_costs_the_tokens_that_its_true_reply_has():
    """A page of six elements of which one changes: the whole page against one line of changes."""
    before = "\n".join(f"[{i}] button 'b{i}'" for i in range(1, 7))
    after = before.replace("'b3'", "'done'")
    situation = Situation(task(goal="Press b3"), (), seen(before), did("click [3]").action)
    engine = Engine(ONE_THREAD)
    try:
        model = engine.model("tiny")
        written = {"page": len(model.encode(after)) + 1, "change": len(model.encode("~[3] button 'done'")) + 1}
        found = [Transition(situation, seen(after), "changed")]
        params = SMOKE.world_model.model_copy(update={"max_tokens": written["change"]})
        page, change = asyncio.run(lookahead.cost_of_pages(model, found, params))
    finally:
        engine.close()
    assert [page["target"], change["target"]] == ["page", "change"]
    assert [page["written_per_page"], change["written_per_page"]] == [written["page"], written["change"]]
    assert page["tokens_per_page"] > change["tokens_per_page"] > written["change"]  # the prompt counts, too
    assert [page["pages"], page["over_max_tokens"], change["over_max_tokens"]] == [1, 1, 0]
    assert page["seconds_per_page"] > change["seconds_per_page"] > 0


def test_both_parts_with_the_server_are_measured_printed_and_written(tmp_path, monkeypatch, capsys):
    small = {"RESULTS": tmp_path / "l.json", "LATENCY": LATENCY, "WIDTHS": (3,), "DEPTHS": (1,), "STEPS": 2}
    for name, value in (small | {"EPISODES": 2, "PARTS": ("decisions", "episodes")}).items():
        monkeypatch.setattr(lookahead, name, value)
    monkeypatch.setattr(sys, "argv", ["lookahead.py", "--quick"])
    lookahead.main()
    written = json.loads((tmp_path / "l.json").read_text())
    assert written["quick"] and written["latency_seconds"] == LATENCY and "versions" in written
    plain, ahead = written["decisions"]
    assert (plain["k"], plain["depth"], plain["calls_in_a_row"]) == (1, 0, 1)
    assert (ahead["k"], ahead["depth"], ahead["calls_in_a_row"]) == (3, 1, 6)
    assert ahead["seconds"] >= 6 * LATENCY and ahead["over_critical_path"] >= 1  # no faster than its latency
    episodes = written["episodes"]
    assert episodes["ideal_seconds"] == 0.6 < episodes["seconds"]  # 2 steps of 6 calls of 0.05 s
    assert episodes["share_of_ideal"] == pytest.approx(0.6 / episodes["seconds"], abs=0.002)
    said = capsys.readouterr().out
    assert "times the critical path (aim: at most 1.15)" in said and "of the ideal (aim: at least 90%)" in said


@pytest.mark.browser
def test_pages_are_those_of_real_transitions(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lookahead, "RESULTS", tmp_path / "l.json")
    monkeypatch.setattr(lookahead, "TASKS", ("navigate-tree", "click-tab-2"))
    monkeypatch.setattr(lookahead, "QUICK", lookahead.Sizes(1, 1, 1, 1))
    monkeypatch.setattr(sys, "argv", ["lookahead.py", "--quick", "--only", "pages", "--model", "tiny"])
    lookahead.main()
    written = json.loads((tmp_path / "l.json").read_text())
    assert "decisions" not in written and written["model"] == "tiny"
    page, change = written["pages"]
    assert page["pages"] == change["pages"] == 1
    assert page["written_per_page"] > change["written_per_page"] > 1
    assert "page over change:" in capsys.readouterr().out

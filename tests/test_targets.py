"""What a world model is asked and replies: prompts, three targets, placeholders, rationales, and how they are read."""

from __future__ import annotations

import pytest
from stand_ins import CHANGE, CHECK, CHECKED, FORM, GOAL, SMOKE, Scripted, seen, task, walk

from wevo_nb.facts import facts_of, facts_on
from wevo_nb.llm import Reply
from wevo_nb.runs import JSONL
from wevo_nb.targets import (
    Explanation,
    changed_by,
    explain,
    key_of,
    messages_for,
    read_page,
    row_for,
    target_text,
    wanted,
)
from wevo_nb.transitions import Situation, Transition, outcome_of, transitions

PARAMS = SMOKE.world_model
PAGES = PARAMS.model_copy(update={"target": "page"})
TOLD = PARAMS.model_copy(update={"target": "change_described"})
AT_FORM = Situation(task(goal=GOAL), (), seen(FORM), CHECK)
CHANGED = Transition(AT_FORM, seen(CHECKED), "changed")


@pytest.mark.parametrize(
    ("after", "params", "target"),
    [
        (seen(CHECKED), PARAMS, f"changed\n{CHANGE}"),
        (seen(CHECKED), PAGES, f"changed\n{CHECKED}"),
        (seen(FORM), PARAMS, "same"),
        (seen("", done=True, reward=1.0), PAGES, "done success"),
        (seen("", done=True, reward=0.2), PARAMS, "done fail"),
        (seen("", done=True, reward=0.2), TOLD, "done fail"),
    ],
)
def test_what_is_learned_from_a_transition(after, params, target):
    assert target_text(Transition(AT_FORM, after, outcome_of(seen(FORM), after)), params) == target


def test_a_row_knows_its_task():
    row = row_for(CHANGED, PARAMS)
    assert (row.task, row.source, row.outcome) == ("click-button", "miniwob/click-button/0", "changed")
    assert row.messages == messages_for(AT_FORM, PARAMS)


@pytest.mark.parametrize("params", [PARAMS, PAGES])
@pytest.mark.parametrize("after", [CHECKED, FORM.replace("OK", "Send"), "[1] heading 'Thanks'", "[1] a\n[2] b\n[3] c"])
def test_from_each_target_the_next_page_is_made(params, after):
    reply = target_text(Transition(AT_FORM, seen(after), "changed"), params).removeprefix("changed\n")
    assert read_page(FORM, reply, params.target) == (after, True)


# -- sentences


async def test_a_described_change_is_a_note_on_the_page_it_is_learned_from(tmp_path):
    said = await explain(Scripted(lambda r: "The box is ticked.\nMore."), [CHANGED], TOLD, cache(tmp_path), batch=2)
    reply = target_text(CHANGED, TOLD, said)
    assert reply == "changed\nThe box is ticked."
    page, readable = read_page(FORM, reply.removeprefix("changed\n"), TOLD.target)
    assert readable and page == f"{FORM}\n[3] note 'After the action: The box is ticked.'"
    assert read_page(FORM, " \n", TOLD.target) == (FORM, False)


def cache(folder) -> JSONL:
    return JSONL(folder / "sentences.jsonl", Explanation)


async def test_a_rationale_stands_before_the_outcome_and_each_is_asked_once(tmp_path):
    """Two kinds of sentence of a changed page, one of an end; the second time none is asked."""
    params = TOLD.model_copy(update={"rationale": True})
    end = Transition(AT_FORM, seen("", done=True, reward=1.0), "success")
    model = Scripted(lambda r: "Why." if "why" in r.messages[0]["content"] else "What.")
    counted = []
    said = await explain(model, [CHANGED, CHANGED, end], params, cache(tmp_path), batch=2, on_done=counted.append)
    assert target_text(CHANGED, params, said) == "Why.\nchanged\nWhat."
    assert target_text(end, params, said) == "Why.\ndone success"
    assert len(model.asked) == 3 == sum(counted) and wanted(params) == ["rationale", "change"]
    assert f"ACTION: click [1] checkbox 'News'\nWHAT CAME OF IT:\n{CHANGE}" in model.asked[0].messages[1]["content"]
    assert await explain(model, [CHANGED, end], params, cache(tmp_path), batch=2) == said
    assert len(model.asked) == 3


async def test_an_empty_sentence_is_named_so_and_plain_targets_ask_none(tmp_path):
    said = await explain(Scripted(lambda r: Reply(text=" ")), [CHANGED], TOLD, cache(tmp_path), batch=1)
    assert said == {key_of(CHANGED, "change"): "(no explanation)"}
    model = Scripted(lambda r: "x")
    assert await explain(model, [CHANGED], PARAMS, cache(tmp_path / "x"), batch=1) == {} and model.asked == []


# -- what the prompt may hold


def test_thoughts_memory_and_hint_stand_in_the_prompt_where_they_are_asked_for():
    more = PARAMS.model_copy(update={"thoughts": True, "memory_chars": 60})
    walked = walk(task(goal=GOAL), "[1] link 'News page'", "click [1]", FORM, "click [1]", CHECKED, ended="limit")
    situation = transitions([walked])[1].situation
    assert messages_for(situation, more, hint=True)[1]["content"] == (
        f"OBSERVATION:\n{FORM}\nOBJECTIVE: {GOAL}\nSEEN BEFORE: link 'News page'\n"
        "EARLIER: I act. click [1] link 'News page'\nACTION: click [1] checkbox 'News'\n"
        "HINT: the page that follows shows what the objective asks for."
    )
    assert messages_for(situation, PARAMS)[1]["content"] == (
        f"OBSERVATION:\n{FORM}\nOBJECTIVE: {GOAL}\n"
        "EARLIER: click [1] link 'News page'\nACTION: click [1] checkbox 'News'"
    )


def test_unknown_facts_are_masked_and_known_ones_are_not():
    """The price and the names are new, 7 stands in the goal; a control is never masked."""
    before = seen("[1] link 'Zoe'")
    after = "[1] StaticText 'Ann paid $12.50 to Bob Ray on day 7'\n[2] button 'Pay Eve 9'"
    found = Transition(Situation(task(goal="What on day 7?"), (), before, CHECK), seen(after), "changed")
    masked = PAGES.model_copy(update={"mask_facts": True})
    assert target_text(found, masked) == (
        "changed\n[1] StaticText '<name> paid <price> to <name> on day 7'\n[2] button 'Pay Eve 9'"
    )
    told = seen("[1] link 'Ann'\n[2] textbox 'To' value: 'Bob Ray'")  # a page tells facts in its controls too
    known = found._replace(situation=found.situation._replace(observation=told))
    assert "'Ann paid <price> to Bob Ray on day 7'" in target_text(known, masked)
    assert target_text(found, PAGES) == f"changed\n{after}"


def test_it_is_counted_how_many_rows_an_option_changes():
    """Of two steps the second has an earlier page to remember, and neither page tells a fact."""
    walked = walk(task(goal=GOAL), "[1] link 'News page'", "click [1]", FORM, "click [1]", CHECKED, ended="limit")
    taught = transitions([walked])
    both = PARAMS.model_copy(update={"mask_facts": True, "memory_chars": 60})
    assert changed_by(taught, both) == {"mask_facts": 0, "memory_chars": 1}
    told = [t._replace(following=seen("[1] StaticText 'It costs $3'")) for t in taught]
    assert changed_by(told, both) == {"mask_facts": 2, "memory_chars": 1}
    assert changed_by(told, PARAMS) == {}


def test_facts_are_prices_numbers_and_names_without_the_quotes_around_them():
    text = "value: 'Bob Ray' costs $12.50, O'Neil's 3 of 10% on 2026-11-30 at 9:05."
    assert facts_of(text) == {"Bob Ray", "$12.50", "O'Neil's", "3", "10%", "2026-11-30", "9:05"}
    assert facts_on("[1] button 'Pay 9'\n[2] StaticText 'Ann 7'\n[3] note '… 5 more'") == {"Ann", "7"}

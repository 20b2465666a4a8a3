"""What judges write, read right or not at all: a corpus of raw replies, each with the verdict that it gives.

The corpus is `judge_replies.jsonl`: name, text, finish (why the model stopped) and verdict, each worked out by
hand. A reply that gives no verdict, or two, or one in passing is unscored.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from wevo_nb.judge import GRADE, RELEVANCE, VERDICT, read_points
from wevo_nb.llm import Reply
from wevo_nb.replies import read_json

CORPUS = [json.loads(line) for line in Path(__file__).with_name("judge_replies.jsonl").read_text().splitlines()]


def test_the_corpus_is_large_and_holds_every_verdict():
    verdicts = [one["verdict"] for one in CORPUS]
    assert len(CORPUS) >= 60 and len({one["name"] for one in CORPUS}) == len(CORPUS)
    assert min(verdicts.count(v) for v in ("success", "failure", "unscored")) >= 20


@pytest.mark.parametrize("one", CORPUS, ids=[one["name"] for one in CORPUS])
def test_a_reply_is_read_right_or_left_unscored(one):
    assert (VERDICT.read(Reply(text=one["text"], finish=one["finish"])) or "unscored") == one["verdict"]


@pytest.mark.parametrize("finish", ["length", "filtered", "failed"])
def test_whatever_a_reply_says_it_is_unread_where_the_model_did_not_end_it(finish):
    assert [one for one in CORPUS if VERDICT.read(Reply(text=one["text"], finish=finish)) is not None] == []


@pytest.mark.parametrize("one", [one for one in CORPUS if one["text"].startswith("{")], ids=lambda one: one["name"])
def test_json_that_ends_early_is_no_verdict_even_where_the_model_says_that_it_ended(one):
    """Every beginning of a reply that stands in braces: no verdict before the brace that closes it."""
    whole = one["text"].index("}") if "}" in one["text"] else 100
    assert {VERDICT.read(Reply(text=one["text"][:end])) for end in range(whole)} == {None}


def test_no_prose_after_a_success_leaves_it_one():
    rng = random.Random(0)
    letters = [chr(c) for c in (*range(0x61, 0x7B), *range(0x410, 0x450), *range(0x4E00, 0x4E40))]
    for one in (one for one in CORPUS if one["verdict"] == "success"):
        word = "".join(rng.sample(letters, 5))
        assert VERDICT.read(Reply(text=f"{one['text']}\n{word}")) is None


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("correct", "correct"),
        ("incorrect", "incorrect"),
        ("not attempted", "not attempted"),
        ("Not attempted.", "not attempted"),
        ('{"reason": "It says Paris.", "grade": "correct"}', "correct"),
        ('```json\n{"reason": "Lyon is not Paris.", "grade": "incorrect"}\n```', "incorrect"),
        ("Grade: not attempted", "not attempted"),
        ("not correct", None),
        ("A", None),
        ("NOT_ATTEMPTED", None),
        ("partially correct", None),
        ('{"grade": "correct"}\n{"grade": "incorrect"}', None),
        ('{"grade": "correct"} at first sight', None),
        ("", None),
    ],
)
def test_grades_of_an_answer_are_read_by_the_same_rules(text, grade):
    assert GRADE.read(Reply(text=text)) == grade


@pytest.mark.parametrize(
    ("text", "relevance"),
    [
        ("4", "4"),
        ('{"reason": "all", "relevance": "5"}', "5"),
        ('{"relevance": 3}', "3"),
        ("6", None),
        ("3 to 4", None),
    ],
)
def test_relevance_is_a_number_from_1_to_5(text, relevance):
    assert RELEVANCE.read(Reply(text=text)) == relevance


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ('{"key_points": ["a lamp", "below 20 dollars"]}', ["a lamp", "below 20 dollars"]),
        ('Sure!\n```json\n{"key_points": ["a lamp", " "]}\n```\nAnything else?', ["a lamp"]),
        ('{"key_points": []}', None),
        ('{"key_points": "a lamp"}', None),
        ('{"key_points": ["a lamp", 3]}', None),
        ('{"key_points": ["a lamp"]}\n{"key_points": ["a chair"]}', None),
        ("1. a lamp", None),
        ("", None),
    ],
)
def test_key_points_are_a_list_of_lines(text, points):
    assert read_points(Reply(text=text)) == points


def test_json_is_found_alone_in_a_fence_and_within_prose_and_not_where_two_differ():
    told = lambda text, finish="stop": read_json(Reply(text=text, finish=finish))  # noqa: E731
    assert told("0.5") == 0.5 and told("```json\n[1, 2]\n```") == [1, 2]
    assert told('I thought.\n{"a": 1}\nThat is all.') == {"a": 1}
    assert told('{"a": 1}\n{"a": 1}') == {"a": 1}
    assert [told('{"a": 1}\n{"a": 2}'), told('{"a": 1}\n{"a": '), told('{"a": 1}', "length"), told("a")] == [None] * 4

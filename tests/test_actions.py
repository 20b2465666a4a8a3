"""The action grammar: what is written reads back, what models write is read, the rest is refused with a cure."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wevo_nb.actions import ReplyError, alias_of, format_action, format_reply, parse_action, parse_reply, thought_of
from wevo_nb.schema import Action

ids = st.integers(0, 10_000)
pieces = st.sampled_from(
    [
        "Thought: ",
        "click ",
        "type ",
        "select",
        "scroll",
        "goto",
        "tab",
        "stop",
        "answer",
        "[3]",
        "(4)",
        " [1]",
        "up",
        "٣",
    ]
)
awkward = st.sampled_from(["]", "[", "] [1", "```", "Action:", "\\", "\\n", "\n", "'", " ", "[press_enter_after=1]"])
texts = st.one_of(st.text(), st.lists(st.one_of(awkward, st.text(max_size=3))).map("".join))
actions = st.one_of(
    st.builds(Action, verb=st.just("click"), id=ids),
    st.builds(Action, verb=st.just("type"), id=ids, text=texts, enter=st.booleans()),
    st.builds(Action, verb=st.just("select"), id=ids, text=texts),
    st.builds(Action, verb=st.just("scroll"), id=st.none() | ids, text=st.sampled_from(["up", "down"])),
    st.builds(Action, verb=st.sampled_from(["wait", "goback", "restart"])),
    st.builds(Action, verb=st.just("tab"), id=ids),
    st.builds(Action, verb=st.sampled_from(["stop", "goto"]), text=texts),
)


@given(actions)
def test_every_action_reads_back(action):
    assert parse_action(format_action(action)) == action


@given(thought=texts, action=actions)
def test_every_action_reads_back_out_of_a_whole_reply(thought, action):
    assert parse_reply(format_reply(thought, action)) == action


@pytest.mark.parametrize(
    ("action", "written"),
    [
        (Action(verb="click", id=3), "click [3]"),
        (Action(verb="type", id=4, text="red shoes"), "type [4] [red shoes] [0]"),
        (Action(verb="type", id=4, text="a]b", enter=True), r"type [4] [a\]b] [1]"),
        (Action(verb="scroll", text="down"), "scroll [down]"),
        (Action(verb="goback"), "goback"),
        (Action(verb="stop", text="42"), "stop [42]"),
        (Action(verb="select", id=5, text="Low to high"), "select [5] [Low to high]"),
        (Action(verb="scroll", id=7, text="up"), "scroll [7] [up]"),
        (Action(verb="goto", text="http://shop/"), "goto [http://shop/]"),
        (Action(verb="tab", id=1), "tab [1]"),
    ],
)
def test_the_written_form_is_the_papers(action, written):
    assert format_action(action) == written


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("Thought: ok. Action: ```click [3]```", Action(verb="click", id=3)),
        ("Action: ```click [3]``` because it is the button.", Action(verb="click", id=3)),
        ("Action: ```click [3]``` no, rather ```click [4]```", Action(verb="click", id=4)),
        ("Thought: the last Action: failed. Action: ```click [5]```", Action(verb="click", id=5)),
        ("Action: ```CLICK [12]```", Action(verb="click", id=12)),
        ("Action: ```Wait```", Action(verb="wait")),
        ("Action: ```click(12)```", Action(verb="click", id=12)),
        ("Action: ```click [[12]]```", Action(verb="click", id=12)),
        ("Action: ```\nclick [3]\n```", Action(verb="click", id=3)),
        ("Thought: no fence. Action: click [7]", Action(verb="click", id=7)),
        ("Action: ```type [3] [bus stop] [0]```", Action(verb="type", id=3, text="bus stop")),
        ("Action: ```type [3] [bus stop]```", Action(verb="type", id=3, text="bus stop")),
        ("Action: ```type [3] [x] [press_enter_after=1]```", Action(verb="type", id=3, text="x", enter=True)),
        ("Action: ```type [3] [x] [press_enter_after=0]```", Action(verb="type", id=3, text="x")),
        ("Action: ```type [3] [1]```", Action(verb="type", id=3, text="1")),
        ("Action: ```scroll [direction=down]```", Action(verb="scroll", text="down")),
        ("Action: ```scroll up```", Action(verb="scroll", text="up")),
        ("Action: ```stop```", Action(verb="stop")),
        ("click [3]", Action(verb="click", id=3)),
        ("```click [3]```", Action(verb="click", id=3)),
        ("I take the third.\n```click [3]```\nThat should do.", Action(verb="click", id=3)),
        ("Action: click 12", Action(verb="click", id=12)),
        ('Action: ```click "12"```', Action(verb="click", id=12)),
        ("Action: ```click [id=12]```", Action(verb="click", id=12)),
        ("Action: ```Click [ 7 ]```", Action(verb="click", id=7)),
        ("Action: ```type [7] [a [b] c] [1]```", Action(verb="type", id=7, text="a [b] c", enter=True)),
        ("Action: ```scroll [4] [down]```", Action(verb="scroll", id=4, text="down")),
        ("Action: ```wait()```", Action(verb="wait")),
        ("Action: ```select [5] [Low to high]```", Action(verb="select", id=5, text="Low to high")),
        ('Action: ```type [3] [say "#1"\nand more] [0]```', Action(verb="type", id=3, text='say "#1"\nand more')),
        ("Action: ```stop [N/A]```", Action(verb="stop", text="N/A")),
    ],
)
def test_what_models_write_is_read(reply, action):
    assert parse_reply(reply) == action


@pytest.mark.parametrize(
    ("reply", "cure"),
    [
        ("I click the button.", r"no action in 'I click the button': write Action: ```...``` with one of click \[id\]"),
        ("", "no action in ''"),
        ("Action: ```squeeze [3]```", r"with one of click \[id\]"),
        ("Action: ```click [button]```", r"with one of click \[id\]"),
        ("Action: ```click [3] now```", r"with one of click \[id\]"),
        ("Action: ```click [12345678901]```", r"with one of click \[id\]"),
        ("Action: ```the bus stop```", r"stop \[answer\]"),
        ("Action: ```waitlist```", r"no action in 'waitlist'"),
        ("Action: ```type [3] [x] [2]```", "the last bracket of .* is 2: press_enter_after is 0 or 1"),
        ("Action: ```type [red] [x]```", r"type \[id\] \[text\] \[press_enter_after=0|1\]"),
        ("Action: ```scroll [left]```", r"scroll \[up\|down\]"),
        ("Action: ", "no action in ''"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_cure(reply, cure):
    with pytest.raises(ReplyError, match=cure):
        parse_reply(reply)


def test_the_thought_comes_back_whole_even_where_it_names_an_action():
    assert thought_of("Thought: try the link. Action: ```click [3]```") == "try the link."
    assert thought_of(format_reply("The last Action: failed.", Action(verb="wait"))) == "The last Action: failed."
    assert thought_of("only a thought") == "only a thought"


@pytest.mark.parametrize(
    ("reply", "action", "alias"),
    [
        ("Action: ```answer [42]```", Action(verb="stop", text="42"), "answer"),
        ("Action: ```answer(42)```", Action(verb="stop", text="42"), "answer"),
        ("Action: ```press [3]```", Action(verb="click", id=3), "press"),
        ("Action: ```fill [3] [x] [1]```", Action(verb="type", id=3, text="x", enter=True), "fill"),
        ("Action: ```go_back```", Action(verb="goback"), "go_back"),
        ("Action: ```stop [answer]```", Action(verb="stop", text="answer"), ""),
    ],
)
def test_other_words_for_a_verb_are_taken_and_told(reply, action, alias):
    assert (parse_reply(reply), alias_of(reply)) == (action, alias)


@settings(max_examples=10_000, deadline=None)
@given(st.one_of(st.text(), st.lists(st.one_of(pieces, awkward, st.text(max_size=4))).map("".join)))
def test_ten_thousand_random_replies_are_read_or_refused(reply):
    """Nothing else can come out, and what is read can be written and read again."""
    try:
        action = parse_reply(reply)
    except ReplyError as problem:
        assert "write Action:" in str(problem) or "press_enter_after" in str(problem)
    else:
        assert parse_action(format_action(action)) == action

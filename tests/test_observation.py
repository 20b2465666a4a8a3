"""The text form of a page: any text reads back, and a difference rebuilds the page it came from."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wevo_nb.observation import apply_changes, changed_bodies, changes, element_of, format_page, is_page, parse_page

NO_LIMIT = {"max_elements": 1000, "max_chars": 10**6, "name_chars": 1000, "indent": True}
names = st.one_of(st.text(max_size=12), st.lists(st.sampled_from(["'", "\\", "\n", "[3]", " ", "a: 'b'"])).map("".join))
roles = st.sampled_from(["button", "link", "textbox", "StaticText", "checkbox"])
properties = st.fixed_dictionaries({}, optional={"value": names, "checked": st.booleans()})
elements = st.fixed_dictionaries({"role": roles, "name": names, "depth": st.integers(0, 3), "properties": properties})
alike = st.fixed_dictionaries(  # few different ones, so that pages share and repeat elements
    {
        "role": st.sampled_from(["button", "link"]),
        "name": st.sampled_from(["", "A", "it's"]),
        "depth": st.just(0),
        "properties": st.sampled_from([{}, {"checked": True}]),
    }
)
pages = st.one_of(st.lists(elements, max_size=6), st.lists(alike, max_size=9)).map(
    lambda found: format_page(found, **NO_LIMIT)
)


def squeezed(text: str) -> str:
    return " ".join(text.split())


@given(st.lists(elements, min_size=1, max_size=8))
def test_roles_names_and_depths_read_back_whatever_the_page_says(found):
    text = format_page(found, **NO_LIMIT)
    read = [(e.id, e.role, e.name, e.depth) for e in parse_page(text)]
    assert read == [(i, e["role"], squeezed(e["name"]), e["depth"]) for i, e in enumerate(found, start=1)]
    assert is_page(text)


@given(st.lists(elements, min_size=1, max_size=12), st.integers(0, 13))
def test_an_element_by_itself_is_the_one_of_the_page(found, number):
    text = format_page(found, **NO_LIMIT)
    every = parse_page(text)
    assert element_of(text, number) == (every[number - 1] if 1 <= number <= len(every) else None)
    assert element_of(text, None) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[1] no element!\n[1] link 'a'\n[1] link 'b'", "a"),  # what is no line of a page is passed over
        ("[12] link 'x'\n\t[2] link 'a'", "a"), ("[2] link '[1] link'\n[1] link 'a'", "a"), ("[11] link 'x'", None),
    ],
)  # fmt: skip
def test_an_element_by_itself_is_the_first_of_its_id(text, name):
    found = element_of(text, 2 if "[2] link 'a'" in text else 1)
    assert (found and found.name) == name


def test_the_lines_of_a_page():
    """One line an element; quotes and line ends of a name cannot start a line of their own."""
    found = [
        {"role": "heading", "name": "It's\n[9] button 'Pay'", "depth": 0, "properties": {}},
        {"role": "textbox", "name": "", "depth": 1, "properties": {"value": "a b", "disabled": True}},
        {"role": "checkbox", "name": "News", "depth": 1, "properties": {"checked": True}},
    ]
    assert format_page(found, **NO_LIMIT).split("\n") == [
        r"[1] heading 'It\'s [9] button \'Pay\''",
        "\t[2] textbox value: 'a b' disabled: true",
        "\t[3] checkbox 'News' checked: true",
    ]
    flat = format_page(found, max_elements=1000, max_chars=1000, name_chars=8, indent=False).split("\n")
    assert flat == [r"[1] heading 'It\'s [9…'", "[2] textbox value: 'a b' disabled: true"] + [
        "[3] checkbox 'News' checked: true"
    ]


def test_elements_beyond_the_budget_are_counted_in_a_last_line():
    found = [{"role": "button", "name": f"b{i}", "depth": 0, "properties": {}} for i in range(5)]
    lines = format_page(found, max_elements=3, max_chars=1000, name_chars=40, indent=False).split("\n")
    assert lines == ["[1] button 'b0'", "[2] button 'b1'", "[3] button 'b2'", "[4] note '… 2 more elements below'"]
    assert format_page(found, max_elements=5, max_chars=1000, name_chars=40, indent=False).count("\n") == 4


@pytest.mark.parametrize(
    "text", ["", "hello", "[2] button 'A'", "[1] button 'A'\n[1] link 'B'", "[1] button A", "[1] button 'A'\n"]
)
def test_what_is_no_page(text):
    assert not is_page(text)


@given(pages, pages)
def test_a_difference_rebuilds_the_page_it_came_from(before, after):
    assert apply_changes(before, changes(before, after)) == (after, True)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        # the same name: updated; nothing is like a dialog: the link went, two elements came
        (
            "[1] textbox 'Name'\n[2] button 'OK'\n[3] link 'Help'",
            "[1] textbox 'Name' value: 'ann'\n[2] button 'OK'\n[3] dialog 'Sure?'\n[4] button 'Yes'",
            ["~[1] textbox 'Name' value: 'ann'", "-[3]", "+[3] dialog 'Sure?'", "+[3] button 'Yes'"],
        ),
        # one role in the same place: a counter
        ("[1] StaticText '3'\n[2] button '+'", "[1] StaticText '4'\n[2] button '+'", ["~[1] StaticText '4'"]),
        # of two links the one with a like name was updated, though it moved down by one
        (
            "[1] link 'Cart (1)'\n[2] button 'OK'",
            "[1] link 'Home'\n[2] link 'Cart (2)'\n[3] button 'OK'",
            ["+[0] link 'Home'", "~[1] link 'Cart (2)'"],
        ),
        # another role: one went, one came, never an update
        ("[1] button 'A'\n[2] link 'B'", "[1] link 'A'\n[2] link 'B'", ["-[1]", "+[1] link 'A'"]),
        ("", "[1] button 'A'", ["+[0] button 'A'"]),
        ("[1] button 'A'", "[1] button 'A'", []),
        # a navigation: the page itself is shorter to tell
        (
            "[1] link 'A'\n[2] link 'B'\n[3] link 'C'\n[4] link 'D'",
            "[1] heading 'Thanks'\n[2] button 'OK'",
            ["new page", "[1] heading 'Thanks'", "[2] button 'OK'"],
        ),
    ],
)
def test_a_difference_by_hand(before, after, told):
    assert changes(before, after) == told
    assert apply_changes(before, told) == (after, True)


def test_a_new_page_that_cannot_be_read_changes_nothing():
    page = "[1] button 'A'"
    assert apply_changes(page, ["new page", "[2] button 'B'"]) == (page, False)
    assert apply_changes(page, ["new page"]) == (page, False)


@pytest.mark.parametrize(
    "line",
    ["", "it changes", "~[3] button 'C'", "+[3] button 'C'", "-[0]", "-[3]", "~[1] button C", "~[1]", "+[0]", "[1]"],
)
def test_a_bad_line_is_not_clean_and_changes_nothing(line):
    page = "[1] button 'A'\n[2] button 'B'"
    assert apply_changes(page, [line]) == (page, False)
    assert apply_changes(page, ["-[1]", line]) == ("[1] button 'B'", False)


def test_changed_bodies_by_hand():
    """Ids do not matter, repeats count, and a changed property is one element gone and one come."""
    before = "[1] checkbox 'A'\n[2] checkbox 'A'\n[3] button 'OK'"
    after = "[1] link 'New'\n[2] checkbox 'A' checked: true\n[3] button 'OK'"
    assert changed_bodies(before, after) == Counter(
        {"- checkbox 'A'": 2, "+ link 'New'": 1, "+ checkbox 'A' checked: true": 1}
    )
    assert changed_bodies(before, before) == Counter()
    assert changed_bodies("[1] button 'A'\n[2] link 'B'", "[1] link 'B'\n[2] button 'A'") == Counter()

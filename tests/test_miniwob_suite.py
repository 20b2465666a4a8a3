"""The groups of MiniWoB++: every page of the wheel has one, and pages known by hand are in the right one.

What is called solvable from text is solved here from the observation alone, in a real Chromium; what
is excluded for what the text does not show, does not show it.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from stand_ins import SMOKE, did

from wevo_nb.browser import BrowserEnv
from wevo_nb.judge import RewardJudge
from wevo_nb.observation import parse_page
from wevo_nb.params import load_params, profiles
from wevo_nb.rollout import rollout
from wevo_nb.schema import Task
from wevo_nb.tasks.miniwob import MiniWoB, task_names
from wevo_nb.tasks.miniwob_groups import EXCLUDED, MEASURED, facts

LONG = SMOKE.observation.model_copy(update={"name_chars": 3000, "max_elements": 300, "max_chars": 30_000})


def test_every_page_of_the_wheel_is_in_one_group():
    named = MEASURED.split()[::2] + [name for names in EXCLUDED.values() for name in names.split()]
    assert sorted(named) == task_names() and len(named) == len(set(named)) == 130
    counts = Counter(known.group for known in facts().values())
    assert counts == {"bootstrap": 30, "target": 48, "easy": 4, "excluded": 48}


@pytest.mark.parametrize(
    ("name", "group", "reason"),
    [
        ("click-button", "bootstrap", ""),
        ("enter-text", "bootstrap", ""),
        ("choose-date", "target", ""),
        ("simple-arithmetic", "target", ""),
        ("login-user-popup", "target", ""),
        ("click-test", "easy", ""),
        ("click-color", "excluded", "a colour that the text does not name"),
        ("drag-items", "excluded", "dragging"),
        ("draw-line", "excluded", "drawing"),
        ("simon-says", "excluded", "timing"),
        ("highlight-text", "excluded", "selecting text"),
        ("visual-addition", "excluded", "shapes or blocks to count by eye"),
    ],
)
def test_pages_known_by_hand(name, group, reason):
    assert (facts()[name].group, facts()[name].reason) == (group, reason)


def test_the_bounds_of_the_groups():
    """15% and 60% belong to bootstrap; a part of the reward counts for nothing, so find-greatest is not easy."""
    by_share = {known.successes / known.episodes: known.group for known in facts().values() if known.episodes}
    assert by_share[0.15] == by_share[0.5] == "bootstrap" and by_share[0.125] == "target" and by_share[0.875] == "easy"
    assert facts()["find-greatest"][2:] == (4, 20)


@pytest.mark.parametrize("profile", profiles())
def test_profiles_train_and_test_on_what_can_be_solved(profile):
    params = load_params(profile, {"collect.suite": "miniwob"}).params
    chosen = {name: facts()[name].group for name in params.tasks.train + params.tasks.held_out}
    assert len(chosen) >= 3 and "excluded" not in chosen.values()


def test_a_task_is_listed_with_its_group_and_reason():
    suite = MiniWoB()
    assert suite.note(Task(suite="miniwob", name="click-tab", seed=9)) == {
        "group": "bootstrap", "random": "17/40", "reason": "",
    }  # fmt: skip
    assert suite.note(Task(suite="miniwob", name="drag-box", seed=0)) == {
        "group": "excluded", "random": "", "reason": "dragging",
    }  # fmt: skip
    assert len(suite.tasks()) == 130


# -- in the browser


class Script:
    """Each step is a function of the goal and the observation that gives an action."""

    name = "script"

    def __init__(self, *steps):
        self.steps = steps

    async def act(self, task, history, observation):
        if len(history) == len(self.steps):
            return None
        return did(self.steps[len(history)](observation))


def click(name: str):
    """The first element of that name; a group of the pattern `name` in the goal where it begins with `/`."""

    def action(seen):
        wanted = re.search(name[1:], seen.goal)[1] if name[0] == "/" else name
        return f"click [{next(e.id for e in parse_page(seen.text) if e.name == wanted)}]"

    return action


def enter(text, number: int = 1, role: str = "textbox"):
    """Types into the n-th field what `text` gives for the observation."""

    def action(seen):
        fields = [e.id for e in parse_page(seen.text) if e.role == role]
        return f"type [{fields[number - 1]}] [{text(seen)}]"

    return action


def goal(pattern: str, write: str = "{}"):
    return lambda seen: write.format(*re.search(pattern, seen.goal).groups())


def scroll_to(name: str):
    """Scrolls the list down where its wanted line cannot be seen yet."""

    def action(seen):
        lines = {e.name: e.id for e in parse_page(seen.text) if "ft" in e.name}
        hidden = re.search(name[1:], seen.goal)[1] not in lines
        return f"scroll [{min(lines.values())}] [down]" if hidden else "wait"

    return action


def wait(seen) -> str:
    return "wait"


def last_word(seen) -> str:
    [text] = re.findall(r"textbox value: '((?:[^'\\]|\\.)+)'", seen.text)
    return text.split()[-1].strip(".")


def numbered_word(seen) -> str:
    number = int(re.search(r"(\d+)\w\w word", seen.goal)[1])
    return parse_page(seen.text)[0].name.split()[number - 1].strip(".,")


def spelled(seen) -> str:
    return "".join(e.name for e in parse_page(seen.text) if e.role == "StaticText")


def other_case(seen) -> str:
    text, case = re.search(r'"(.+)" in all (\w+) case', seen.goal).groups()
    return text.lower() if case == "lower" else text.upper()


def guesses(seen) -> str:
    """The least number that was not excluded yet; the page tells of the last guess alone."""
    last = [int(e.name) for e in parse_page(seen.text) if e.name.isdigit()]
    return str(last[0] + 1 if last else 0)


SOLVED = {
    "click-pie": [click("+"), wait, click('/labeled "(.)"')],
    "click-pie-nodelay": [click("+"), click('/labeled "(.)"')],
    "login-user-popup": [
        enter(goal(r'username "(\w+)"')), enter(goal(r'password "(\w+)"'), 2), click("OK"),
    ],
    "enter-date": [enter(goal(r"(\d+)/(\d+)/(\d+)", "{2}-{0}-{1}")), click("Submit")],
"enter-text-2": [enter(other_case), click("Submit")],
    "text-transform": [enter(spelled), click("Submit")],
    "find-word": [enter(numbered_word), click("Submit")],
    "scroll-text": [enter(last_word, 2), click("Submit")],
    "form-sequence-3": [
        click("▾"), *[scroll_to("/Choose (.+) from")] * 3, click("/Choose (.+) from"), click('/labeled "(.+)"'),
    ],
    "guess-number": [enter(guesses, role="spinbutton"), click("Submit")] * 10,
    "grid-coordinate": [lambda seen: click(f"#{re.search(r'coordinate (.+).$', seen.goal)[1]}")(seen)],
}  # fmt: skip


@pytest.fixture(scope="module")
def suite():
    with MiniWoB() as one:
        yield one


async def walk(chromium, suite, name: str, seed: int, *steps):
    environment = BrowserEnv(chromium, suite, SMOKE.browser, LONG)
    try:
        return await rollout(Script(*steps), environment, Task(suite="miniwob", name=name, seed=seed), max_steps=30)
    finally:
        await environment.close()


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", SOLVED)
async def test_what_chance_does_not_solve_can_be_solved_from_the_text(chromium, suite, name):
    assert facts()[name].group != "excluded"
    for seed in (3, 4):
        trajectory = await walk(chromium, suite, name, seed, *SOLVED[name])
        assert trajectory.final.reward == 1.0, trajectory.final


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_excluded_does_not_show_what_the_goal_asks_for(chromium, suite):
    """No colour, no mark on the board, no icon, no space at the end of the text to copy, no number after the first."""
    color = await walk(chromium, suite, "click-color", 3)
    assert "purple" in color.final.goal and {e.name for e in parse_page(color.final.text)} == {"color"}
    board = await walk(chromium, suite, "tic-tac-toe", 3, lambda seen: "click [5]")
    assert board.final.text == board.steps[0].observation.text
    menu = await walk(chromium, suite, "click-menu-2", 3)
    assert menu.final.goal.endswith("click on the item with the icon.")
    copied = await walk(chromium, suite, "copy-paste", 3)
    assert "value: 'Vel. Mi in quam tempus malesuada hendrerit egestas. Posuere'" in copied.final.text
    numbers = await walk(chromium, suite, "ascending-numbers", 3, click("1"))
    assert not {e.name for e in parse_page(numbers.final.text)} & set("2345")


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_a_part_of_the_reward_is_no_success(chromium, suite):
    """find-greatest pays 0.1 for any card, click-checkboxes for every box that is right by itself."""
    wrong = await walk(chromium, suite, "find-greatest", 3, click("6"), click("Submit"))
    boxes = await walk(chromium, suite, "click-checkboxes", 3, click("Submit"))
    assert wrong.final.reward == 0.1 and 0 < boxes.final.reward < 1
    for trajectory in (wrong, boxes):
        assert (await RewardJudge().judge(trajectory)).outcome == "failure"

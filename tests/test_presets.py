"""Every preset of look-ahead against a real MiniWoB++ page, and with replies that cannot be read.

The page is click-checkboxes. The policy ticks what the goal names and presses Submit one box too
early; every model beside it knows better. All models are one script, which tells from the
question who it is: `arms.open_model` is where a model endpoint begins.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from stand_ins import SMOKE, Scripted, did, outcome_reply, seen, task

from wevo_nb import arms
from wevo_nb.arms import open_arm, open_policy, stages_of, usage_of
from wevo_nb.browser import BrowserEnv
from wevo_nb.judge import RewardJudge
from wevo_nb.llm import CallFailed, ModelError, Reply, Usage
from wevo_nb.observation import parse_page
from wevo_nb.params import load_params, parse_arm
from wevo_nb.prompts import DREAMER, JUDGE_REPLIES, POLICY_SHORT, SCORER, VALUE, WORLD_MODEL
from wevo_nb.rollout import rollout
from wevo_nb.schema import Step, Trajectory
from wevo_nb.tasks.miniwob import MiniWoB
from wevo_nb.world_model import WorldModelEnv

PRESETS = (*SMOKE.wmla.presets, "wmla_d1", "wmla_d2", "wmla_d3", "wmla_k5_d2")
OUTCOMES, PAGES = "world_model outcome", "world_model page"
# What each preset asks beside the policy: the model, and for what.
ASKS = {
    "best_of_k": {"scorer outcome"},
    "best_of_k_expected": {"scorer outcome"},
    "best_of_k_veto": {"scorer outcome"},
    "best_of_k_likelihood": {"scorer outcome"},
    "best_of_k_llm": {"scorer score"},
    "expected": {OUTCOMES},
    "veto": {OUTCOMES},
    "likelihood": {OUTCOMES},
    "value": {OUTCOMES, PAGES, "world_model value"},
    "webdreamer": {"scorer dream", "scorer score"},
    "wma": {OUTCOMES, PAGES, "world_model value"},
    "paper": {OUTCOMES, PAGES, "scorer score"},
    "released_code": {OUTCOMES, PAGES, "scorer score"},
    "tree_search": {"scorer score"},
    "wmla_d1": {OUTCOMES},
    "wmla_d2": {OUTCOMES, PAGES},
    "wmla_d3": {OUTCOMES, PAGES},
    "wmla_k5_d2": {OUTCOMES, PAGES},
}
KINDS = {POLICY_SHORT: "policy", WORLD_MODEL["change"]: "outcome", SCORER: "score", VALUE: "value", DREAMER: "dream"}
DREAMS = {"1": "All is as asked.", "0.5": "One more box is as asked.", "0": "Something is not as asked."}
VALUES = {"1": (0, 0, 0, 0.5, 0.5), "0.5": (0, 0, 1, 0, 0), "0": (0.5, 0.5, 0, 0, 0)}  # 0.875, 0.5 and 0.125


def log(chances) -> tuple[float, ...]:
    return tuple(math.log(p) if p else -math.inf for p in chances)


class Question:
    """A page of boxes, what its goal names, and the action that is asked about."""

    def __init__(self, request):
        [*_, self.text] = [m["content"] for m in request.messages if m["role"] == "user"]
        page, _, rest = self.text.partition("OBJECTIVE: ")
        self.kind = KINDS[request.messages[0]["content"]]
        if request.messages[-1]["role"] == "assistant":
            self.kind = "page"
        self.wanted = re.match("Select (.+) and click Submit", rest)[1].split(", ")
        self.checked = checked(page)
        self.left = [name for name in self.wanted if name not in self.checked]
        self.action = re.search(r"ACTION: click \[(\d+)\] \w+ '(.+)'", rest)

    @property
    def worth(self) -> str:
        """1, 0.5 or 0 for the action, by what was imagined where anything was."""
        _, imagined, after = self.text.partition("PREDICTED PAGE 1:\n")
        for worth, words in DREAMS.items():
            if words in after:
                return worth
        if "P(success) = " in after:
            return "1" if "P(success) = 1.00" in after else "0"
        if imagined and "(the episode ends)" not in after:
            return "0.5" if checked(after) <= {*self.wanted} else "0"
        if self.action[2] == "Submit":
            return "1" if self.checked == {*self.wanted} else "0"
        return "0.5" if self.action[2] in self.left else "0"

    def liked(self, choice: str) -> int:
        """How much the policy likes a reply: Submit where one box is left, else the next box; then the other."""
        early = len(self.left) <= 1
        name = re.search("'(.+?)'", choice)[1]
        return {"Submit": 8 if early else 4, (self.left or self.wanted)[0]: 4 if early else 8}.get(name, 2**-6)


def checked(page: str) -> set[str]:
    return {element.name for element in parse_page(page) if "checked: true" in element.properties}


class Mind:
    """A model of any role. `broken` answers what it is asked of one kind; `dull`: whatever is done changes the page."""

    def __init__(self, name: str, asked: Counter, broken: dict, dull: bool = False):
        self.name, self.asked, self.broken, self.dull, self.usage = name, asked, broken, dull, Usage()

    async def __call__(self, requests):
        self.usage.add(calls=len(requests), prompt=0, completion=0, seconds=0)
        return [self.answer(request) for request in requests]

    def answer(self, request) -> list[Reply]:
        question = Question(request)
        self.asked[f"{self.name} {question.kind}"] += 1
        replies = getattr(self, question.kind)(question, request)
        if question.kind in self.broken:
            return [self.broken[question.kind](reply) for reply in replies]
        return replies

    def policy(self, question, request) -> list[Reply]:
        """The likeliest; of 20 draws 10 are of the box that it likes least, 6 of the likeliest, 4 of the next."""
        liked = [question.liked(choice) for choice in request.choices]
        order = sorted(request.choices, key=question.liked, reverse=True)
        texts = [order[-1]] * 10 + [order[0]] * 6 + [order[1]] * 4 if request.n == 20 else [order[0]]
        return [Reply(text=text, logprobs=log(n / sum(liked) for n in liked)) for text in texts]

    def outcome(self, question, request) -> list[Reply]:
        outcomes = {"1": "success", "0.5": "changed", "0": "failure"}
        return [outcome_reply("changed" if self.dull else outcomes[question.worth])]

    def page(self, question, request) -> list[Reply]:
        return [Reply(text=f"~[{question.action[1]}] checkbox '{question.action[2]}' checked: true")]

    def score(self, question, request) -> list[Reply]:
        return [Reply(text=question.worth)] * request.n

    def value(self, question, request) -> list[Reply]:
        return [Reply(text="0.5", logprobs=log(VALUES[question.worth]))]

    def dream(self, question, request) -> list[Reply]:
        return [Reply(text=DREAMS[question.worth])]


def opened(preset: str, monkeypatch, make=None, *, broken=None, dull=False, params=SMOKE):
    """The arm of a preset over an untrained policy, and the count of what its models are asked."""
    asked, minds = Counter(), {}

    def open_model(role, engine, params, *, trained=None, name=""):
        return minds.setdefault(name, Mind(name, asked, broken or {}, dull))

    monkeypatch.setattr(arms, "open_model", open_model)
    return open_arm("a-run", parse_arm(f"zero_shot+{preset}", params), None, params, make), asked


# -- in real pages


SEEDS = {1: 3, 3: 10}  # of click-checkboxes, by how many of its six boxes the goal names


@pytest.fixture(scope="module")
def suite():
    with MiniWoB() as one:
        yield one


async def walk(policy, make, boxes: int):
    environment = make()
    try:
        return await rollout(policy, environment, task("click-checkboxes", SEEDS[boxes]), max_steps=boxes + 1)
    finally:
        await environment.close()


@pytest.fixture
def make(chromium, suite):
    return lambda: BrowserEnv(chromium, suite, SMOKE.browser, SMOKE.observation)


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("boxes", SEEDS)
async def test_the_policy_alone_sends_too_early(boxes, make, monkeypatch):
    monkeypatch.setattr(arms, "open_model", lambda *args, **how: Mind("policy", Counter(), {}))
    trajectory = await walk(open_policy("a-run", None, "zero_shot", None, SMOKE), make, boxes)
    assert len(trajectory.task.goal.split(", ")) == boxes == len(trajectory.steps)
    assert trajectory.ended == "done" and trajectory.final.reward < 1


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("preset", PRESETS)
async def test_every_preset_earns_the_full_reward_where_the_policy_alone_does_not(preset, chromium, make, monkeypatch):
    """Three boxes where a preset skips two steps, so that the decision that counts is the third."""
    skipped = SMOKE.wmla.preset(preset).skip_steps
    policy, asked = opened(preset, monkeypatch, make)
    trajectory = await walk(policy, make, skipped + 1)
    assert (trajectory.ended, trajectory.final.reward, len(trajectory.steps)) == ("done", 1.0, skipped + 2)
    assert {what for what in asked if "zero_shot" not in what} == ASKS[preset]
    assert [step.decision.fell_back for step in trajectory.steps] == [""] * (skipped + 2)
    decisions = [step.decision for step in trajectory.steps[skipped:]]
    assert all(decision.cost.calls and decision.candidates for decision in decisions)
    scores = {candidate.reply: candidate.score for candidate in decisions[0].candidates}
    [early] = [score for reply, score in scores.items() if "click button 'Submit'" in reply and " > " not in reply]
    assert early < scores[decisions[0].reply] and None not in scores.values()
    if preset == "tree_search":
        # A stray box, Submit and the right box, each from the start, then the two after it: 3 x 1 + 2 x 2 actions.
        assert [decision.cost.steps for decision in decisions] == [7, 4]
    assert not chromium.contexts


# -- replies that cannot be read


PAGE = "[1] checkbox 'A'\n[2] checkbox 'B'\n[3] button 'Submit'"
TASK = task(goal="Select A and click Submit.")
GREEDY = "Thought: I will click button 'Submit'. Action: ```click [3]```"


def no_answer(reply):
    raise CallFailed("m at u: 500")


def no_server(reply):
    raise ModelError("no model server answers at u")


FAULTS = {
    "empty": lambda reply: Reply(text=""),
    "blank": lambda reply: Reply(text=" \n", finish="length"),
    "cut off": lambda reply: Reply(text=reply.text[:-1], finish="length"),
    "unreadable": lambda reply: Reply(text="hm, hard to say"),
    "no answer": no_answer,
}
PARTS = [(preset, what.split()[1]) for preset in PRESETS for what in sorted(ASKS.get(preset, ()))]
CASES = [
    (*one, fault) for one in PARTS for fault in FAULTS if (one[1], fault) != ("dream", "unreadable")
]  # any words do


async def decide(preset: str, monkeypatch, broken: dict, **how):
    """A decision on the written page, and the arm; tree search tries in a world model."""
    pages = lambda: WorldModelEnv(Mind("pages", Counter(), {}), SMOKE.world_model, {TASK.key: seen(PAGE)})  # noqa: E731
    policy, _ = opened(preset, monkeypatch, pages, broken=broken, dull=True, **how)
    before = Step(observation=seen("[1] link 'elsewhere'"), decision=did("wait"))
    history = [before] * SMOKE.wmla.preset(preset).skip_steps
    return await policy.act(TASK, history, seen(PAGE)), policy


def test_every_preset_is_listed_with_what_it_asks():
    assert sorted(ASKS) == sorted(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
async def test_where_every_reply_is_read_every_candidate_is_scored(preset, monkeypatch):
    decision, _ = await decide(preset, monkeypatch, {})
    assert decision.fell_back == "" and None not in [c.score for c in decision.candidates] != []


@pytest.mark.parametrize(("preset", "part", "fault"), CASES)
async def test_what_cannot_be_read_is_unscored_and_leaves_the_choice_to_the_policy(preset, part, fault, monkeypatch):
    decision, _ = await decide(preset, monkeypatch, {part: FAULTS[fault]})
    assert decision.reply == GREEDY
    assert [c.score for c in decision.candidates] == [None] * 3
    assert decision.fell_back.endswith("m at u: 500") if fault == "no answer" else decision.fell_back


@pytest.mark.parametrize(("preset", "part"), PARTS)
async def test_a_missing_server_is_not_taken_for_an_unread_reply(preset, part, monkeypatch):
    with pytest.raises(ModelError, match="^no model server answers at u$"):
        await decide(preset, monkeypatch, {part: no_server})


# -- arms


@pytest.mark.parametrize(
    ("preset", "calls"),
    [
        ("best_of_k", {"policy": 1, "scorer": 3}),
        ("wmla_d1", {"policy": 1, "world_model": 3}),
        ("wma", {"policy": 1, "world_model": 3 + 3 + 3}),  # outcomes, pages, values
        ("paper", {"policy": 1, "world_model": 3 + 3, "scorer": 3}),
        ("webdreamer", {"policy": 1, "scorer": 3 + 3}),  # outcomes in words and their scores
        ("tree_search", {"policy": 2, "scorer": 3 + 2}),  # the page and the one after A; what was tried on them
    ],
)
async def test_what_each_role_costs(preset, calls, monkeypatch):
    decision, policy = await decide(preset, monkeypatch, {})
    assert {role: usage.calls for role, usage in usage_of(policy).items()} == calls
    if preset != "tree_search":  # whose imagined environment costs calls as well
        assert decision.cost.calls == sum(calls.values())


def test_stages_that_must_be_done_first():
    needed = {
        name: stages_of(parse_arm(name, SMOKE), SMOKE) for name in ("random", "zero_shot+wma", "webevolver+paper")
    }
    assert needed == {
        "random": (),
        "zero_shot+wma": ("iter-2/02_wm_train",),
        "webevolver+paper": ("04_webevolver", "iter-2/02_wm_train"),
    }
    assert {stages_of(parse_arm(f"zero_shot+{name}", SMOKE), SMOKE) for name in ("best_of_k", "webdreamer")} == {()}


def test_a_scorer_that_cannot_be_bound_writes_json(monkeypatch):
    hosted = {"engine": "openai", "url": "http://localhost:1/v1", "constraint": "none"}
    free, _ = opened("paper", monkeypatch, params=load_params("smoke", {"roles.scorer": hosted}).params)
    bound, _ = opened("paper", monkeypatch)
    assert (free.scorer.free, bound.scorer.free) == (True, False)


def test_tree_search_needs_somewhere_to_try(monkeypatch):
    with pytest.raises(ValueError, match=r"zero_shot\+tree_search tries actions in real pages: give make_environment"):
        opened("tree_search", monkeypatch)


async def test_a_judge_is_opened_by_its_name_over_the_model_of_its_role(monkeypatch):
    """Of pages that tell no reward the model in roles.judge says what is learned from, roles.evaluator the scores."""
    asked = {}

    def open_model(role, engine, params, *, trained=None, name=""):
        asked[name] = role.base
        return Scripted(lambda request: request.choices[0], name)

    monkeypatch.setattr(arms, "open_model", open_model)
    assert isinstance(arms.open_judge("reward", None, SMOKE), RewardJudge) and asked == {}
    hosted = SMOKE.roles.judge.model_copy(update={"base": "gpt-4o", "engine": "openai"})
    params = SMOKE.model_copy(update={"roles": SMOKE.roles.model_copy(update={"evaluator": hosted})})
    outside = arms.open_judge("key_points", None, params, role="evaluator")
    assert (asked, outside.name, outside.asked.name) == ({"evaluator": "gpt-4o"}, "key_points", "gpt-4o")
    assert not outside.asked.fixed and outside.at_once > 1
    for rule, there in (("gaia", {}), ("model", {"judge": "tiny"})):
        asked.clear()
        arms.open_judge("answer", None, params, suite=SimpleNamespace(rule=rule))
        assert asked == there
    judge = arms.open_judge("llm", None, params)
    assert (judge.asked.name, judge.asked.fixed, judge.at_once) == (
        "tiny",
        True,
        1,
    )  # in this process: a word, one by one
    page = seen("[1] link 'a'")
    ended = Trajectory(task=task(), policy="p", environment="browser", steps=(), final=page, ended="limit")
    verdict = await judge.judge(ended)
    assert verdict.outcome == JUDGE_REPLIES[0]

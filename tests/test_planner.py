"""The plan of a run: every profile's, numbers counted by hand, what does not fit, what this machine lacks."""

from __future__ import annotations

import json
import shlex
from importlib.util import find_spec
from itertools import takewhile

import pytest
from typer.testing import CliRunner

from wevo_nb import chain, cli, costs, launch, machine, planner, sft
from wevo_nb.memory import shape_of, weight_bytes
from wevo_nb.params import ROOT, ParamsError, flatten, load_params, merge, parse_arm, parse_setting
from wevo_nb.prompts import SCORER_REPLIES
from wevo_nb.sections import FINAL_ARMS
from wevo_nb.vllm_server import vllm_command
from wevo_nb.workload import Counted, Load, Work, by_role, load_of, sizes

PROFILES = ("smoke", "demo", "study", "qlora_8b", "qlora_70b", "paper_70b")
KEYS = {
    "stages", "models", "commands", "calls", "tokens", "memory", "host_gb", "disk_gb", "hours", "cost", "missing",
    "fits", "problems", "assumptions",
}  # fmt: skip
MEMORY_KEYS = {"weights_gb", "kv_gb", "optimizer_gb", "activations_gb", "per_gpu_gb"}
SETTINGS = json.loads((ROOT / "wevo_nb" / "paper_numbers.json").read_text())["webevolver"]["settings"]


@pytest.fixture(autouse=True)
def bare_machine(tmp_path, monkeypatch):
    """A machine without GPU, vllm, keys, hub cache or downloaded tasks."""
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path / "outputs"))
    monkeypatch.setenv("WEVO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)


def wevo(*words: str):
    return CliRunner().invoke(cli.app, ["plan", *words])


def lacking(profile: str, overrides: dict | None = None) -> dict[str, str]:
    """What is missing and its cure."""
    return {one["what"]: one["cure"] for one in planner.plan(profile, overrides or {})["missing"]}


def settings_in(text: str) -> dict:
    """The overrides that a text names by `--set key=value`."""
    words, found = shlex.split(text), {}
    for setting in (words[i + 1] for i, word in enumerate(words[:-1]) if word == "--set"):
        found = merge(found, parse_setting(setting))
    return found


def advised(profile: str, words: str) -> dict:
    """The overrides that a profile's opening names in the lines below these words."""
    lines = (ROOT / "params" / f"{profile}.yaml").read_text().partition(words)[2].split("\n")[1:]
    return settings_in(" ".join(takewhile(lambda line: line.startswith("#   --set "), lines)))


# -- every profile


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_planned_and_fits_its_own_hardware(profile):
    told = planner.plan(profile, {})
    assert told.keys() >= KEYS and told["memory"].keys() == MEMORY_KEYS
    assert [one["stage"] for one in told["stages"]] == [step.stage for step in chain.plan(profile, {})]
    assert told["fits"] and not told["problems"]
    assert told["hours"] > 0 and told["memory"]["per_gpu_gb"] > 0 and told["disk_gb"] >= 0
    assert json.loads(json.dumps(told)) == told


@pytest.mark.parametrize("profile", PROFILES)
def test_the_numbers_in_a_profiles_opening_are_those_of_its_plan(profile):
    """Of the GPU profiles, which state them; the others were measured."""
    opening = " ".join(
        line.removeprefix("# ")
        for line in (ROOT / "params" / f"{profile}.yaml").read_text().split("\n\n")[0].split("\n")
    )
    if "By wevo plan" in opening:
        told = planner.plan(profile, {})
        memory = f"{told['memory']['per_gpu_gb']:.1f} GB on the fullest GPU"
        said = f"{told['hours']:.0f} hours, {memory}, {told['disk_gb']:,.0f} GB of disk, {told['cost']:,.0f} dollars"
        assert said in opening
    else:
        assert profile in ("smoke", "demo", "study")


# -- the paper


def test_paper_70b_has_every_setting_that_the_paper_reports():
    params = load_params("paper_70b").params
    roles = params.roles
    assert {roles.policy.base, roles.world_model.base, roles.judge.base} == {"meta-llama/Llama-3.3-70B-Instruct"}
    assert roles.scorer.base == roles.evaluator.base == "gpt-4o"
    assert (params.collect.suite, params.tasks.train) == ("openwebvoyager", ("il",))
    assert params.tasks.train_seeds == SETTINGS["training_queries"] == 1516
    assert params.synthesize.horizon == SETTINGS["synthetic_horizon"] == 7
    assert params.wmla.k == SETTINGS["candidates"] == 3
    depths = {parse_arm(name, params).ahead.depth for name in params.arms() if "+wmla_d" in name}
    assert sorted(depths) == SETTINGS["lookahead_depths"] == [1, 2, 3]
    assert params.wmla.temperature == SETTINGS["other_candidates_temperature"] == 0.7
    assert params.wmla.candidates == "different"  # the first is greedy: policies.propose asks it at 0.0
    assert params.wmla.scorer == "llm" and sorted(map(float, SCORER_REPLIES)) == SETTINGS["scores"]
    assert f"iter-{params.synthesize.world_model_iteration}" == SETTINGS["world_model_for_synthesis"] == "iter-2"
    assert f"iter-{params.synthesize.policy_iteration}" == SETTINGS["policy_for_synthesis"] == "iter-1"
    assert SETTINGS["final_mixture"] == "D_1 + D_w" and "webevolver" in params.sft.arms
    assert FINAL_ARMS["webevolver"].startswith("D_1 and the imagined successes")
    assert params.iterations == 3 and params.sft.method == params.world_model_sft.method == "full"
    assert params.world_model.target == "page" and params.synthesize.judge == "llm"
    widths = {parse_arm(name, params).ahead.k for name in params.arms() if "_k" in name and "best" not in name}
    assert widths | {params.wmla.k} == {2, 3, 5}  # Table 4


# -- calls and tokens


def test_calls_of_a_small_profile_by_hand():
    """smoke: 3 tasks with 6 seeds, and half of 4 steps each; 18 imagined episodes of half of 3 steps."""
    steps = {step.stage: step for step in chain.plan("smoke", {})}
    tasks = Counted(train=18, test=8, kinds=3)
    policy, judge = load_of(steps["iter-1/01_collect"], tasks).work
    assert (policy.role, policy.calls, policy.trained) == ("policy", 36, None)
    assert judge.calls == 4  # collect.llm_judge_sample
    again = load_of(steps["iter-2/01_collect"], tasks).work[0]
    assert again.trained == "iter-1/04_self_improve"
    dreams = by_role([load_of(steps["03_synthesize"], tasks)])
    assert dreams["policy"].calls == 18 * 1.5 + 2  # 6 tasks, 3 attempts, half of 3 steps; two are written
    assert dreams["world_model"].calls == 2 * 18 * 1.5  # the outcome and the page
    for replay, episodes in (("none", 0), ("accepted", 7.2), ("all", 18)):  # two of five are accepted
        [step] = [s for s in chain.plan("smoke", {"synthesize.replay": replay}) if s.stage == "03_synthesize"]
        found = load_of(step, tasks)
        assert (found.episodes, found.steps) == (pytest.approx(episodes), pytest.approx(episodes * 1.5))
    rows = load_of(steps["iter-1/02_wm_train"], tasks)
    assert rows.rows == 18 and rows.epochs == 12  # the quotas: 12 successes and 6 changes


@pytest.mark.parametrize(
    ("judge", "suite", "calls"),
    [
        ("reward", "miniwob", 4),  # collect.llm_judge_sample, to be compared
        ("llm", "miniwob", 18),
        ("key_points", "miniwob", 18 * 5),  # the points, three pages of two steps, the verdict
        ("answer", "gaia_web", 0),  # by rule
        ("answer", "simpleqa", 18),
    ],
)
def test_what_is_collected_costs_what_its_judge_asks(judge, suite, calls):
    how = {"collect.judge": judge, "collect.suite": suite, "tasks.max_steps": 4}
    how |= {} if suite == "miniwob" else {"tasks.train": [suite], "tasks.held_out": []}
    step = chain.plan("smoke", how)[0]
    roles = by_role([load_of(step, Counted(train=18, test=8, kinds=3))])
    assert (roles["judge"].calls if "judge" in roles else 0) == calls


def test_a_decision_with_look_ahead_costs_what_its_arm_says():
    """demo asks once for all candidates; three outcomes a step, and no page, because no page is read."""
    [step] = [step for step in chain.plan("demo", {"wmla.arms": ["zero_shot+wmla_d1"]}) if step.notebook == "05_wmla"]
    tasks = Counted(train=120, test=40, kinds=6)
    roles = by_role([load_of(step, tasks)])
    decisions = 40 * 2.5  # half of five steps
    assert roles["policy"].calls == decisions
    assert roles["world_model"].calls == 3 * decisions and "scorer" not in roles
    deeper = {"wmla.arms": ["zero_shot+wmla_d2"], "wmla.scorer": "llm"}
    [step] = [step for step in chain.plan("demo", deeper) if step.notebook == "05_wmla"]
    roles = by_role([load_of(step, tasks)])
    assert roles["policy"].calls == decisions + 3 * decisions  # it acts once in each imagined page
    assert roles["world_model"].calls == 3 * 2 * 2 * decisions  # two deep, the outcome and the page
    assert roles["scorer"].calls == 3 * decisions


def test_tasks_that_are_not_here_are_counted_as_the_params_ask():
    told = planner.plan("paper_70b", {})
    first = told["stages"][0]
    assert first["episodes"] == 1516 and first["steps"] == 1516 * 7.5
    assert told["calls"]["judge"] >= 3 * 1516
    rows = [one["rows"] for one in told["stages"] if one["stage"].endswith("04_self_improve")]
    assert rows == [1516 * 3, 1516 * 6, 1516 * 9]  # two of five succeed, in 7.5 steps, after one, two and three rounds


def test_longer_pages_are_more_tokens_up_to_the_budget():
    few, many, cut = (
        sizes(load_params("demo", {"observation": {"max_elements": n, "max_chars": chars}}).params).page
        for n, chars in ((40, 8000), (80, 8000), (80, 1040))
    )
    assert many == 2 * few and cut == few == 0.5 * 40 * (12 + 14) / 3.5


# -- hours and cost


def test_hours_of_a_training_by_hand():
    """A million tokens over 6,979,321,856 weights: 2 forward, 2 backward, 2 again, at 30% of 165 TFLOPS."""
    [step] = [step for step in chain.plan("qlora_8b", {}) if step.stage == "iter-1/02_wm_train"]
    load = Load(rows=1000, row_tokens=500, epochs=2)
    hours = costs.hours(step.resolved.params, step, load, [])
    assert hours == pytest.approx(1e6 * 6 * 6_979_321_856 / (165e12 * 0.3) / 3600)
    loaded = costs.hours(step.resolved.params, step, load, [("vllm", "meta-llama/Llama-3.1-8B-Instruct")])
    assert loaded - hours == pytest.approx((5.702295552 + 60) / 3600)


@pytest.mark.parametrize("profile", ["qlora_8b", "qlora_70b", "paper_70b"])
def test_the_longest_reply_of_a_gpu_profile_comes_within_its_timeout(profile):
    """By the plan's own arithmetic, weights read once a token at six tenths of the bandwidth, ten times over."""
    params = load_params(profile).params
    base, form = shape_of(params.roles.world_model.base), costs.form_of(params, "vllm")
    devices = params.serve.tensor_parallel * params.serve.pipeline_parallel
    a_token = weight_bytes(base, form) / devices / (params.hardware.bandwidth_gb * 1e9 * 0.6)
    longest = max(params.world_model.max_tokens, params.policy.max_tokens)
    assert longest == 2048 and 10 * longest * a_token < params.llm.timeout_s


def test_cost_is_gpus_for_the_whole_time_and_the_tokens_of_hosted_models():
    params = load_params("paper_70b").params
    cost = costs.cost(params, 2.0, {"scorer": Work("scorer", 10, 4e6, 1e6), "policy": Work("policy", 10, 4e6, 1e6)})
    assert cost == {"gpus": 2 * 32 * 2.5, "hosted": 4 * 2.5 + 1 * 10}
    others = {"roles.scorer.base": "another", "roles.evaluator.base": "another"}
    free = load_params("paper_70b", others)
    told = planner.plan("paper_70b", others)
    assert told["costs"]["hosted"] == 0 and free.params.roles.scorer.base == "another"
    assert any("another has no price" in line for line in told["assumptions"])


def test_disk_by_hand():
    """70,553,706,496 weights: 2 bytes each from the hub and trained, and 4 with 8 of moments in three checkpoints."""
    [step] = [step for step in chain.plan("paper_70b", {}) if step.stage == "iter-1/02_wm_train"]
    params = step.resolved.params
    assert params.world_model_sft.checkpoints == 3
    assert costs.disk_gb(params, [step], [Load()]) == pytest.approx(70.553706496 * (2 + 2 + 3 * 12))


# -- commands


def test_one_server_holds_base_policy_and_world_model_where_adapters_are_trained():
    told = planner.plan("qlora_8b", {})
    [server] = [one for one in told["commands"] if (one["stage"], one["what"]) == ("03_synthesize", "server")]
    assert server["command"] == vllm_command(
        load_params("qlora_8b").params.serve, "meta-llama/Llama-3.1-8B-Instruct", port=8000
    )
    assert sorted(server["adapters"]) == ["policy-1-<hash>", "wm-2-<hash>"]  # as serve.py calls them
    trainings = [one["command"] for one in told["commands"] if one["what"] == "training"]
    assert set(trainings) == {"in this process"} and len(trainings) == 5


def test_whole_models_have_a_server_each_and_a_training_is_started_on_every_host():
    told = planner.plan("paper_70b", {})
    servers = [one["command"] for one in told["commands"] if (one["stage"], one["what"]) == ("03_synthesize", "server")]
    weights = [command[2] for command in servers]
    assert len(weights) == 3 and weights[2] == "meta-llama/Llama-3.3-70B-Instruct"
    assert [w.rpartition("paper_70b/")[2] for w in weights[:2]] == [
        "iter-1/04_self_improve/model", "iter-2/02_wm_train/model",
    ]  # fmt: skip
    assert len({command[command.index("--port") + 1] for command in servers}) == 3
    ranks = [
        one["command"][one["command"].index("--machine_rank") + 1]
        for one in told["commands"]
        if (one["stage"], one["what"]) == ("04_webevolver", "training")
    ]
    assert ranks == ["0", "1", "2", "3"]


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "no"), ("bfloat16", "bf16")])
def test_a_training_over_processes_is_told_as_it_is_started(tmp_path, monkeypatch, dtype, precision):
    """On a CPU by a config beside the job, in the precision of llm.dtype; on GPUs by the config of the profile."""
    monkeypatch.setattr(sft, "has_gpu", lambda: False)
    two = {"sft.launch.processes": 2, "llm.dtype": dtype}
    trainings = [c for c in planner.plan("smoke", two)["commands"] if c["what"] == "training"]
    [told] = [one["command"] for one in trainings if one["stage"] == "04_webevolver"]
    folder, params = tmp_path / "outputs" / "smoke" / "04_webevolver", load_params("smoke", two).params
    assert launch.described(params.sft.launch, params.llm, folder) == f"host 0 (this one): {shlex.join(told)}"
    said = dict(zip(told, told[1:], strict=False))
    assert (said["--config_file"], said["--mixed_precision"]) == (str(folder / "accelerate.yaml"), precision)
    assert {one["command"] for one in trainings if one["stage"].endswith("02_wm_train")} == {"in this process"}
    gpus = planner.plan("smoke", two | {"hardware.gpus": 2, "hardware.gpu_gb": 24})["commands"]
    assert all(str(ROOT / "params/accelerate/none.yaml") in c["command"] for c in gpus if c["stage"] == "04_webevolver")


def test_a_world_model_that_answered_in_this_process_lies_beside_its_training():
    """8,030,261,248 weights of the untrained one in 16 bit; the policy is not asked before its own training."""
    here = {f"roles.{role}.engine": "transformers" for role in ("policy", "world_model", "judge", "scorer")}
    weights = {}
    for name, overrides in (("served", {}), ("here", here)):
        for phase in planner.plan("qlora_8b", overrides)["phases"]:
            if phase["kind"] == "training":
                weights[name, phase["model"]] = phase["weights_gb"]
    more = {model: weights["here", model] - weights["served", model] for name, model in weights if name == "here"}
    assert more == {"policy, qlora": 0.0, "world model, qlora": pytest.approx(16.06, abs=0.011)}


def test_a_gate_that_lets_long_replies_through_takes_room_for_a_whole_page():
    """16,000 characters are 4,572 tokens in place of 2,048, each with 128,256 logits of 14 bytes."""
    trained = lambda told: next(p for p in told["phases"] if p["model"] == "world model, qlora")  # noqa: E731
    strict = trained(planner.plan("qlora_8b", {"world_model_sft.gate.cut_off": 0}))
    most = load_params("qlora_8b").params.world_model.max_tokens
    more = trained(planner.plan("qlora_8b", {}))["activations_gb"] - strict["activations_gb"]
    assert most == 2048 and more == pytest.approx((4572 - most) * 128256 * 14 / 1e9, abs=0.011)


def test_models_in_workers_lie_in_memory_as_often_as_there_are_workers():
    """The notebook's and three workers' on this host, or its GPU; over two hosts, two of three and the notebook's."""
    answering = lambda told: next(phase for phase in told["phases"] if phase["kind"] == "answering")  # noqa: E731
    alone, ray = planner.plan("demo", {}), {"collect.backend": "ray", "collect.workers": 3}
    gpu = {"hardware.gpus": 1, "hardware.gpu_gb": 24}
    for one, overrides, copies in (
        (alone, ray, 4),
        (alone, ray | {"collect.address": "n1:6379", "hardware.hosts": 2}, 3),
        (planner.plan("demo", gpu), ray | gpu, 4),
    ):
        told = planner.plan("demo", overrides)
        assert answering(told)["per_gpu_gb"] == pytest.approx(copies * answering(one)["per_gpu_gb"], abs=0.02)
        assert any("hours are those of one worker" in line for line in told["assumptions"])
    assert not any("worker" in line for line in alone["assumptions"])


# -- what does not fit


def test_a_70b_model_does_not_fit_24_gb_and_the_plan_says_by_how_much():
    result = wevo("--profile", "qlora_70b", "--set", "hardware.gpu_gb=24", "--json")
    told = json.loads(result.output)
    assert result.exit_code == 1 and not told["fits"]
    training = next(problem for problem in told["problems"] if problem.startswith("training (world model, qlora)"))
    wanted = told["memory"]["per_gpu_gb"]
    assert f"takes {wanted:.1f} GB on each GPU, {wanted - 24:.1f} GB more than the 24.0 GB there are" in training
    assert "take a smaller base, or GPUs of more than" in training
    assert any(problem.startswith("answering (meta-llama/Llama-3.3-70B-Instruct)") for problem in told["problems"])


@pytest.mark.parametrize(
    ("profile", "broken"),
    [
        ("qlora_8b", ["sft.method=full", "world_model_sft.method=full", "serve.tensor_parallel=1", "hardware.gpus=3"]),
        ("qlora_8b", ["sft.gradient_checkpointing=false", "world_model_sft.gradient_checkpointing=false"]),
        ("qlora_8b", ["serve.quantization=null", "browser.contexts=16"]),
        ("qlora_8b", ["sft.lora_rank=32", "world_model_sft.lora_rank=32"]),  # of servers that take 16
        ("qlora_8b", ["sft.launch={processes: 2, sharding: fsdp2}", "hardware.gpus=2"]),  # with its paged optimizer
        ("qlora_70b", ["serve.quantization=null", "hardware.gpus=4", "browser.contexts=2"]),
    ],
)
def test_the_cure_that_a_plan_names_is_one(profile, broken):
    overrides: dict = {}
    for setting in broken:
        overrides = merge(overrides, parse_setting(setting))
    problems = planner.plan(profile, overrides)["problems"]
    assert problems
    for problem in problems:
        overrides = merge(overrides, settings_in(problem.rpartition(": ")[2]))
    assert planner.plan(profile, overrides)["problems"] == []


def test_a_rank_that_vllm_has_no_room_for_is_rounded_up_in_the_cure_and_refused_in_the_params():
    problems = planner.plan("qlora_8b", {"sft.lora_rank": 24})["problems"]
    assert [p.rpartition(": ")[2] for p in problems] == ["--set serve.max_lora_rank=32"]
    problems = planner.plan("paper_70b", {"sft.method": "qlora"})["problems"]
    assert "sft.method is qlora, and servers hold no adapter: --set serve.max_adapters=2" in problems
    problems = planner.plan("qlora_8b", {"sft.lora_rank": 600})["problems"]
    assert any(problem.endswith("lower sft.lora_rank") for problem in problems)
    with pytest.raises(ParamsError, match="serve.max_lora_rank"):
        planner.plan("qlora_8b", {"serve.max_lora_rank": 24})


def test_the_papers_scale_needs_more_than_one_host_and_its_opening_says_what_trains_on_one():
    one_host = {"hardware.hosts": 1, "sft.launch.hosts": 1, "world_model_sft.launch.hosts": 1}
    problems = planner.plan("paper_70b", one_host)["problems"]
    assert any(problem.startswith("training (policy, full)") for problem in problems)
    adapters = advised("paper_70b", "Adapters do with one host")
    assert flatten(adapters).items() >= one_host.items() and planner.plan("paper_70b", adapters)["fits"]
    params, rate = load_params("paper_70b", adapters).params, load_params("qlora_70b").params.sft.lora_learning_rate
    assert costs.form_of(params, "vllm") == "nf4"  # what the adapters are trained over
    for how in (params.sft, params.world_model_sft):
        assert (how.method, how.lora_learning_rate) == ("qlora", rate)
        at_once = how.batch * how.launch.processes * how.launch.hosts
        assert how.accumulate * at_once == 64  # rows a step, as OpenWebVoyager


def test_the_opening_of_paper_70b_names_the_first_host_and_vllms_environment():
    params = load_params("paper_70b", advised("paper_70b", "Elsewhere each command says its address")).params
    assert {how.launch.main_host for how in (params.sft, params.world_model_sft)} == {"ADDRESS"}
    params = load_params("paper_70b", advised("paper_70b", "vLLM needs an environment of its own")).params
    says = f"serve: {{command: [{', '.join(params.serve.command)}]}}"
    assert says in (ROOT / "environment-vllm.yml").read_text()


def test_servers_that_are_asked_in_turns_are_counted_as_they_run():
    """One for a policy and one for the world model that it is asked beside; judges and other policies take turns.

    serve.py runs one server at a time, two where each takes at most half of the memory, on the GPUs of one host.
    """
    tasks = Counted(train=10, test=10, kinds=2)
    for profile, expected in (("paper_70b", {"01": 1, "02": 0, "03": 2, "05": 2}), ("qlora_70b", {"03": 1, "05": 1})):
        steps = {step.notebook[:2]: step for step in chain.plan(profile, {})}
        found = {key: planner.in_turns(profile, steps[key], load_of(steps[key], tasks)) for key in expected}
        assert found == expected
    [problem] = planner.plan("paper_70b", {"serve.memory_share": 0.9})["problems"]
    assert problem.startswith(
        "2 models answer in turns, and 1 may run at once by serve.memory_share 0.9: train adapters"
    )
    [problem] = planner.plan("paper_70b", {"serve.pipeline_parallel": 2})["problems"]
    assert problem.startswith("servers take 16 GPUs, and there are 8 on a host: lower serve.tensor_parallel")
    over_ray = {"serve.pipeline_parallel": 2, "serve.hosts": 4}  # where each server gets 16 GPUs of its own
    assert planner.plan("paper_70b", over_ray)["fits"]


def test_more_processes_than_gpus_and_a_server_without_any_are_refused():
    problems = planner.plan("qlora_8b", {"sft.launch.processes": 4, "sft.launch.sharding": "fsdp2"})["problems"]
    assert any("sft.launch asks for 1 x 4 GPUs, and there are 1 x 1" in problem for problem in problems)
    assert "hardware.gpus is 0" in planner.plan("qlora_8b", {"hardware.gpus": 0})["problems"][0]


def test_two_gpus_fit_as_the_opening_of_qlora_70b_says():
    overrides = advised("qlora_70b", "Two GPUs nearly halve the time")
    assert overrides["hardware"] == {"gpus": 2}
    one, two = planner.plan("qlora_70b", {}), planner.plan("qlora_70b", overrides)
    assert two["fits"] and 0.4 < two["hours"] / one["hours"] < 0.7


# -- what this machine lacks


def test_a_machine_without_a_gpu_lacks_what_the_paper_needs_and_that_is_no_error():
    told = lacking("paper_70b")
    assert any(what.startswith("8 GPU of 80 GB a host (here: 0)") for what in told)
    assert any(what.startswith("424.0 GB of memory (here: ") for what in told)  # 70,553,706,496 x 6 bytes and Python
    assert (
        "pip install vllm bitsandbytes in an environment of its own, and set serve.command"
        in told["vllm (there is no command 'vllm')"]
    )
    assert told["a key for gpt-4o in the environment variable OPENAI_API_KEY"].startswith("export OPENAI_API_KEY=")
    assert (
        "hf download meta-llama/Llama-3.3-70B-Instruct --exclude 'original/*' ("
        in told["weights of meta-llama/Llama-3.3-70B-Instruct"]
    )
    assert "wevo tasks openwebvoyager --download" in told["the tasks of suite openwebvoyager"]
    assert "wevo sites up" in lacking("qlora_8b")["the tasks of suite sites"]
    assert wevo("--profile", "paper_70b").exit_code == 0
    beside = {"other": {"engine": "openai", "url": "http://localhost:1/v1", "base": "other", "api_key_env": "OTHER"}}
    assert "a key for other in the environment variable OTHER" in lacking("demo", {"world_model": {"beside": beside}})


def test_vllm_is_looked_for_in_the_conda_environment_that_starts_it(tmp_path):
    """A conda that has one environment with vllm, and says of any other that there is none."""
    conda = tmp_path / "conda"
    command = ["conda", "run", "--no-capture-output", "-n", "wevo-vllm", "vllm", "serve"]
    asks = "run --no-capture-output -n wevo-vllm python -c import importlib.metadata as m; m.version('vllm')"
    conda.write_text(f'#!/bin/sh\n[ "$*" = "{asks}" ]\n')
    conda.chmod(0o755)
    assert not any(what.startswith("vllm") for what in lacking("qlora_8b", {"serve.command": command}))
    command[4] = "another"
    cure = lacking("qlora_8b", {"serve.command": command})["vllm (conda finds none in the environment 'another')"]
    assert cure.startswith(
        "conda env create -f environment-vllm.yml, or pip install vllm bitsandbytes in an environment of its own"
    )
    conda.unlink()
    assert "vllm (there is no command 'conda')" in lacking("qlora_8b", {"serve.command": command})


def test_packages_are_asked_for_where_a_profile_uses_them():
    for package, overrides in {
        "bitsandbytes": {},
        "flash_attn": {"sft.attention": "flash_attention_2"},
        "deepspeed": {"sft": {"method": "full", "launch": {"processes": 2, "sharding": "deepspeed"}}},
        "ray": {"collect.backend": "ray"},
    }.items():
        assert (package in lacking("qlora_8b", overrides)) == (find_spec(package) is None)
    assert not {"bitsandbytes", "flash_attn", "deepspeed", "ray"} & lacking("study").keys()


def test_a_package_that_is_not_here_is_missing_only_where_it_is_asked_for(monkeypatch):
    """On a machine with none of them: ray for workers, and bitsandbytes, which qlora_8b trains with."""
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None)
    assert "ray" not in lacking("qlora_8b") and "bitsandbytes" in lacking("qlora_8b")
    cure = lacking("qlora_8b", {"collect.backend": "ray"})["ray"]
    assert cure.startswith("pip install 'ray>=2.60,<3' here and on every host") and "collect.backend: local" in cure


def test_a_key_that_is_set_and_gpus_that_are_here_are_not_missing(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a word")
    monkeypatch.setattr(machine, "gpus_here", lambda: [85.5] * 8)
    told = lacking("paper_70b")
    assert not any("GPU" in what or "key" in what for what in told)
    monkeypatch.setattr(machine, "gpus_here", lambda: [85.5] * 7 + [24.0])
    assert any("(here: 7)" in what for what in lacking("paper_70b"))


def test_gpus_are_those_that_nvidia_smi_tells(tmp_path, monkeypatch):
    assert machine.gpus_here() == []
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 24564\necho 81559\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert machine.gpus_here() == [24564 * 2**20 / 1e9, 81559 * 2**20 / 1e9]


def test_memory_and_disk_of_this_machine_are_compared():
    params = load_params("demo").params
    how = {"profile": "demo", "no_tasks": ""}
    assert machine.missing(params, memory_gb=0.1, disk_gb=0.0, **how) == machine.missing(
        params, memory_gb=0.2, disk_gb=0.0, **how
    )
    told = [one.what for one in machine.missing(params, memory_gb=1e6, disk_gb=1e9, **how)]
    assert any("1000000.0 GB of memory" in what for what in told)
    assert any("1,000,000,000 GB of disk" in what for what in told)


def test_a_base_is_a_folder_or_it_is_missing(tmp_path):
    assert machine.find_weights("tiny").folder == "made on the spot"
    assert machine.find_weights(str(tmp_path)).folder is None
    (tmp_path / "config.json").write_text("{}")
    assert machine.find_weights(str(tmp_path)).folder == str(tmp_path)


def test_weights_whose_download_was_broken_off_are_missing(tmp_path, monkeypatch):
    """In a hub's cache, under their commit: two parts by the index, one of them there."""
    (folder := tmp_path / "snapshots" / "abc").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    parts = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: str(folder / "config.json"))
    (folder / parts["a"]).write_bytes(b"")
    assert machine.find_weights("org/model") == machine.Weights(None, "abc")
    (folder / parts["b"]).write_bytes(b"")
    assert machine.find_weights("org/model") == machine.Weights(str(folder), "abc")


# -- the command


def test_the_command_prints_what_a_person_wants_to_know():
    result = wevo("--profile", "qlora_8b")
    assert result.exit_code == 0
    for part in (
        "stages, estimated", "iter-1/01_collect", "8,030,261,248", "vllm serve meta-llama/Llama-3.1-8B-Instruct",
        "memory of one device", "hours", "dollars", "assumed: ", "missing on this machine", "it fits",
    ):  # fmt: skip
        assert part in result.output, part


def test_json_holds_the_keys_and_nothing_else_is_printed():
    result = wevo("--profile", "smoke", "--json")
    assert result.exit_code == 0 and json.loads(result.output).keys() >= KEYS


def test_bad_input_is_exit_status_2():
    assert wevo("--profile", "nobody").exit_code == 2
    assert wevo("--profile", "smoke", "--set", "wmla.kk=3").exit_code == 2
    assert wevo("--profile", "qlora_8b", "--set", "roles.policy.base=/nowhere/model").exit_code == 2


def test_a_plan_makes_nothing(tmp_path):
    planner.plan("demo", {})
    planner.plan("smoke", {})
    planner.plan("qlora_8b", {})
    assert list(tmp_path.iterdir()) == []


def test_seeds_of_drawn_suites_are_bounded_and_queries_are_not():
    with pytest.raises(ParamsError, match="tasks.train_seeds is 501: suite miniwob has 500 an iteration"):
        load_params("demo", {"tasks.train_seeds": 501})
    assert load_params("qlora_70b", {"tasks.train_seeds": 501}).params.tasks.train_seeds == 501

"""Profiles: layers, overrides, and refusals that name the key, the value and the layer."""

from __future__ import annotations

import pytest

from wevo_nb.params import ParamsError, load_params, parse_arm, parse_setting, profiles


@pytest.mark.parametrize("profile", ["smoke", "demo", "study", "qlora_8b", "qlora_70b", "paper_70b"])
def test_the_shipped_profiles_are_valid(profile):
    assert profile in profiles()
    assert load_params(profile).profile == profile


def test_each_value_knows_the_layer_that_set_it():
    rows = {row["key"]: row for row in load_params("smoke", {"wmla": {"k": 5}}).rows("tasks", "wmla", "roles")}
    assert rows["wmla.k"] == {"key": "wmla.k", "value": "5", "set by": "overrides"}
    assert rows["tasks.train_seeds"] == {"key": "tasks.train_seeds", "value": "6", "set by": "smoke"}
    assert rows["roles.policy.base"]["value"] == "tiny" and rows["roles.policy.base"]["set by"] == "smoke"
    assert rows["roles.policy.engine"] == {"key": "roles.policy.engine", "value": "transformers", "set by": "base"}
    assert "seed" not in rows


def test_overrides_may_be_nested_or_dotted_and_lists_are_replaced_whole():
    nested = load_params("demo", {"wmla": {"k": 5, "temperature": 0.1}, "policy": {"verbs": ["click"]}})
    dotted = load_params("demo", {"wmla.k": 5, "wmla.temperature": 0.1, "policy.verbs": ["click"]})
    assert nested == dotted
    assert dotted.params.wmla.k == 5 and dotted.params.policy.verbs == ("click",)
    assert dotted.params.wmla.scorer == "expected"  # the neighbours stay: the profile's own


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sft.learning_rate=1e-4", {"sft": {"learning_rate": 0.0001}}),
        ("wmla.k=5", {"wmla": {"k": 5}}),
        ("wmla.arms=[random, zero_shot]", {"wmla": {"arms": ["random", "zero_shot"]}}),
        ("browser.executable=null", {"browser": {"executable": None}}),
        ("roles.policy.base=3eyes", {"roles": {"policy": {"base": "3eyes"}}}),
    ],
)
def test_a_setting_is_read_as_yaml_and_1e_4_as_a_number(text, value):
    assert parse_setting(text) == value


def test_1e_4_is_a_number_in_overrides_too():
    assert load_params("smoke", parse_setting("sft.learning_rate=1e-4")).params.sft.learning_rate == 0.0001


@pytest.mark.parametrize("text", ["wmla.k", "=5", ""])
def test_a_setting_without_key_or_value_is_refused(text):
    with pytest.raises(ParamsError, match="is no key=value, e.g. --set wmla.k=5"):
        parse_setting(text)


@pytest.mark.parametrize("name", ["demi", "base", "../params/demo"])
def test_an_unknown_profile_is_refused_with_those_there_are(name):
    with pytest.raises(
        ParamsError, match=f"no profile '{name}': take one of demo, paper_70b, qlora_70b, qlora_8b, smoke, study"
    ):
        load_params(name)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"sft.epoch": 2}, r"unknown key sft.epoch \(from overrides\); did you mean sft.epochs\?"),
        ({"task": {}}, r"unknown key task \(from overrides\); did you mean tasks\?"),
        ({"wmla.zzz": 1}, r"unknown key wmla.zzz \(from overrides\); known here: arms, more_arms, grid, "),
        ({"roles.policy.adaptr": "x"}, r"unknown key roles.policy.adaptr .*did you mean roles.policy.adapter\?"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(overrides, message):
    with pytest.raises(ParamsError, match=message):
        load_params("demo", overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"seed": 500}, r"^seed is 500 \(from overrides\): Input should be less than 500$"),
        ({"world_model.held_out_share": 0.7}, r"^world_model.held_out_share is 0.7 .*less than or equal to 0.5"),
        ({"synthesize.threshold": 1.1}, r"^synthesize.threshold is 1.1 .*less than or equal to 1"),
        ({"wmla.k": 1}, r"^wmla.k is 1 \(from overrides\): Input should be greater than or equal to 2$"),
        ({"sft.epochs": "many"}, r"^sft.epochs is 'many' \(from overrides\): .*valid number"),
        ({"llm.dtype": "float8"}, r"^llm.dtype is 'float8' \(from overrides\): .*'bfloat16' or 'float32'"),
        ({"tasks": 3}, r"^tasks is 3 \(from overrides\)"),
        ({"tasks.train": []}, r"^tasks.train.* \(from overrides\): .*at least 1 item"),
        ({"policy.verbs": ["click", "jump"]}, r"^policy.verbs.1 is 'jump' \(from overrides\)"),
        ({"roles.judge": {"engine": "openai"}}, r"^roles.judge.*needs a url, e.g. http://localhost:8000/v1"),
        ({"roles.judge": {"engine": "openai"}}, r"^roles.judge \(from overrides\)"),
    ],
)
def test_a_value_out_of_range_names_key_value_and_layer(overrides, message):
    with pytest.raises(ParamsError, match=message):
        load_params("demo", overrides)


def test_runs_to_be_analysed_are_folder_names_each_once():
    asked = load_params("demo", {"analysis.runs": ["demo", "demo-1"]}).params.analysis
    assert (asked.runs, asked.clusters) == (("demo", "demo-1"), "family")
    assert load_params("demo").params.analysis.runs == ()
    for runs, message in (
        (["a", "b", "a"], "analysis .*runs names a twice: a run is evidence once"),
        (["../elsewhere"], r"analysis\.runs\.0 is '../elsewhere'"),
        ("demo", "analysis.runs is 'demo'"),
    ):
        with pytest.raises(ParamsError, match=message):
            load_params("demo", {"analysis.runs": runs})


def test_every_fault_is_told_at_once():
    with pytest.raises(ParamsError) as caught:
        load_params("demo", {"wmla.k": 1, "iterations": 0})
    assert [line.split(" ")[0] for line in str(caught.value).split("\n")] == ["iterations", "wmla.k"]


def test_a_task_in_train_and_held_out_is_refused():
    message = r"^tasks \(from overrides\): click-link stand in both train and held_out: take them out of one"
    with pytest.raises(ParamsError, match=message):
        load_params("demo", {"tasks.held_out": ["click-link", "click-tab"]})


@pytest.mark.parametrize("key", ["policy_iteration", "world_model_iteration"])
def test_synthesis_cannot_use_an_iteration_that_is_not_run(key):
    message = f"synthesize.{key} is 3, but there are only 2 iterations"
    with pytest.raises(ParamsError, match=message):
        load_params("demo", {f"synthesize.{key}": 3})
    assert getattr(load_params("demo", {f"synthesize.{key}": 2}).params.synthesize, key) == 2


@pytest.mark.parametrize(
    ("different", "message"),
    [
        (
            {"method": "qlora"},
            r"method qlora with launch.sharding deepspeed, which wants weights of one dtype: take fsdp2",
        ),
        ({"method": "lora"}, r"adapter_dtype float32 with launch.sharding deepspeed.*: set adapter_dtype: bfloat16"),
        (
            {"method": "lora", "adapter_dtype": "bfloat16"},
            r"llm.dtype is float32, and sft.launch.sharding deepspeed wants",
        ),
    ],
)
def test_weights_of_two_dtypes_are_refused_where_deepspeed_splits_them(different, message):
    split = {"launch": {"processes": 2, "sharding": "deepspeed"}}
    with pytest.raises(ParamsError, match=message):
        load_params("smoke", {"sft": split | different})  # computes in float32


def test_deepspeed_splits_an_adapter_in_bfloat16_and_whole_weights():
    split = {"launch": {"processes": 2, "sharding": "deepspeed"}}
    adapter = {"sft": split | {"method": "lora", "adapter_dtype": "bfloat16"}, "llm.dtype": "bfloat16"}
    assert load_params("smoke", adapter).params.sft.adapter_dtype == "bfloat16"
    assert load_params("smoke", {"sft": split}).params.sft.method == "full"


@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ("wmla", "synthesize.look_ahead: no preset 'wmla': take wmla_d<n>, wmla_k<n>_d<n> or one of best_of_k, "),
        ("tree_search", "synthesize.look_ahead is tree_search: it tries actions in real pages: take wmla_d1"),
        ("value", "synthesize.look_ahead value asks the world model for a value: set world_model.value_rows"),
    ],
)
def test_a_dream_looks_ahead_only_in_what_can_be_imagined(preset, message):
    with pytest.raises(ParamsError, match=message):
        load_params("demo", {"synthesize.look_ahead": preset})


def test_who_dreams():
    dreamer = load_params("demo", {"synthesize.look_ahead": "wmla_k2_d3"}).params.dreamer()
    assert (dreamer.name, dreamer.policy_stage) == ("self_improve_1+wmla_k2_d3", "iter-1/04_self_improve")
    assert (dreamer.ahead.k, dreamer.ahead.depth) == (2, 3)
    assert load_params("smoke", {"synthesize.policy_iteration": 2}).params.dreamer().name == "self_improve_2"


@pytest.mark.parametrize(
    ("first", "asked", "message"),
    [
        (3, None, "world_model.first_iteration is 3: of 2 iterations none trains one: lower it"),
        (2, 1, "synthesize.world_model_iteration is 1, and the first that is trained is 2"),
    ],
)
def test_a_world_model_that_is_not_trained_cannot_be_asked(first, asked, message):
    with pytest.raises(ParamsError, match=message):
        load_params("demo", {"world_model.first_iteration": first, "synthesize.world_model_iteration": asked})
    load_params("demo", {"world_model.first_iteration": 2, "synthesize.world_model_iteration": 2})


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ("self_improved_1", "wmla.arms: no arm 'self_improved_1': take random, zero_shot, self_improve_<i>, webev"),
        ("random+wmla_d1", r"wmla.arms: no arm 'random\+wmla_d1'"),
        ("self_improve_3", "wmla.arms: self_improve_3 needs iteration 3, and iterations is 2"),
        ("self_improve_0", "wmla.arms: self_improve_0 needs iteration 0, and iterations is 2"),
        ("explorer", "wmla.arms: explorer needs the data arm explorer: add it to sft.arms"),
        ("mixed+wmla_d1", r"wmla.arms: mixed\+wmla_d1 needs the data arm mixed: add it to sft.arms"),
        (
            "zero_shot+dream",
            r"wmla.arms: zero_shot\+dream: no preset 'dream': take wmla_d<n>, .*best_of_k_llm, expected, ",
        ),
        ("zero_shot+wmla_d0", r"wmla.arms: zero_shot\+wmla_d0: no preset 'wmla_d0'"),
        ("zero_shot+wmla_k1_d1", r"wmla.arms: zero_shot\+wmla_k1_d1: no preset 'wmla_k1_d1'"),
        ("zero_shot+", r"wmla.arms: zero_shot\+: no preset ''"),
    ],
)
def test_an_arm_that_does_not_exist_is_refused_before_anything_runs(arm, message):
    with pytest.raises(ParamsError, match=message):
        load_params("demo", {"wmla.arms": ["zero_shot", arm]})


def test_what_is_no_mapping_and_what_is_no_yaml_is_refused():
    with pytest.raises(ParamsError, match="overrides is 'wmla.k=5': it must be a mapping"):
        load_params("demo", "wmla.k=5")
    with pytest.raises(ParamsError, match=r"--set 'wmla.arms=\[zero_shot': the value is no YAML"):
        parse_setting("wmla.arms=[zero_shot")


@pytest.mark.parametrize(
    ("name", "policy", "stage", "preset", "depth", "imagines"),
    [
        ("random", "random", None, "", None, False),
        ("zero_shot", "zero_shot", None, "", None, False),
        ("self_improve_2+wmla_d3", "self_improve_2", "iter-2/04_self_improve", "wmla_d3", 3, True),
        ("webevolver+best_of_k", "webevolver", "04_webevolver", "best_of_k", 0, False),
        ("more_real+wma", "more_real", "04_more_real", "wma", 1, True),
        ("zero_shot+webdreamer", "zero_shot", None, "webdreamer", 1, False),
        ("zero_shot+tree_search", "zero_shot", None, "tree_search", 2, False),
    ],
)
def test_what_an_arm_is_made_of(name, policy, stage, preset, depth, imagines):
    arm = parse_arm(name, load_params("demo", {"sft.arms": ["more_real", "webevolver"]}).params)
    assert arm[:4] == (name, policy, stage, preset)
    assert (arm.ahead and arm.ahead.depth) == depth and arm.imagines is imagines


DEFAULT = ("zero_shot", "self_improve_1", "self_improve_2", "webevolver", "webevolver+wmla_d1", "webevolver+best_of_k")


def test_the_default_arms_are_every_policy_and_look_ahead_with_the_last():
    assert load_params("smoke").params.arms() == DEFAULT
    more = load_params("demo").params
    assert more.arms() == (*DEFAULT, *more.wmla.more_arms)


@pytest.mark.parametrize(
    ("overrides", "arms"),
    [
        ({"iterations": 1}, ("zero_shot", "self_improve_1", *DEFAULT[3:])),
        (
            {"sft.arms": ["webevolver", "mixed"]},
            (*DEFAULT[:4], "mixed", "mixed+wmla_d1", "mixed+best_of_k"),
        ),
        ({"sft.arms": []}, (*DEFAULT[:3], "self_improve_2+wmla_d1", "self_improve_2+best_of_k")),
        ({"wmla.arms": ["random"], "wmla.more_arms": ["zero_shot+veto"]}, ("random",)),
        ({"wmla.more_arms": ["zero_shot+veto", "zero_shot"]}, (*DEFAULT, "zero_shot+veto")),
    ],
)
def test_the_default_arms_follow_the_iterations_and_the_data_arms(overrides, arms):
    assert load_params("smoke", overrides).params.arms() == arms


def test_a_grid_is_more_arms_in_its_order_and_none_twice():
    grid = {"policy": ["webevolver", "zero_shot"], "k": [2, 5], "depth": [2, 1]}
    named = {"wmla.arms": ["random", "webevolver+wmla_k5_d2"], "wmla.grid": grid}
    assert load_params("demo", named).params.arms() == (
        "random", "webevolver+wmla_k5_d2",
        "webevolver+wmla_k2_d2", "webevolver+wmla_k2_d1", "webevolver+wmla_k5_d1",
        "zero_shot+wmla_k2_d2", "zero_shot+wmla_k2_d1", "zero_shot+wmla_k5_d2", "zero_shot+wmla_k5_d1",
    )  # fmt: skip
    only_depth = {"wmla.grid": {"policy": ["zero_shot"], "depth": [1, 2]}, "wmla.k": 4}
    assert load_params("smoke", only_depth).params.arms() == (
        *DEFAULT, "zero_shot+wmla_k4_d1", "zero_shot+wmla_k4_d2",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"policy": ["explorer"], "k": [2]}, "explorer.* needs the data arm explorer: add it to sft.arms"),
        ({"policy": ["webevolver"], "k": [1]}, "no preset 'wmla_k1_d1'"),
        ({"policy": ["webevolver"], "width": [1]}, "wmla.grid.width.* Input should be 'policy', 'k' or 'depth'"),
    ],
)
def test_a_grid_of_what_does_not_exist_is_refused(grid, message):
    with pytest.raises(ParamsError, match=message):
        load_params("demo", {"wmla.grid": grid})


# -- presets


OWN = {
    "candidates": "different", "k": 3, "temperature": 0.7, "imagination": "world_model", "depth": 1,
    "imagination_temperature": 0, "scorer": "outcome", "scores": 1, "skip_steps": 0, "search": "look_ahead",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "different"),
    [
        ("wmla_d1", {}),
        ("wmla_d2", {"depth": 2}),
        ("wmla_d3", {"depth": 3}),
        ("wmla_k5_d2", {"k": 5, "depth": 2}),
        ("wmla_k20_d1", {"k": 20}),
        ("best_of_k", {"imagination": "none", "depth": 0}),
        ("expected", {"scorer": "expected"}),
        ("veto", {"scorer": "veto"}),
        ("likelihood", {"scorer": "likelihood"}),
        ("value", {"scorer": "value"}),
        ("webdreamer", {"imagination": "free_text", "scorer": "llm", "scores": 10, "scorer_temperature": 1.0}),
        ("wma", {"candidates": "frequent", "samples": 20, "temperature": 1.0, "scorer": "value"}),
        ("paper", {"imagination_temperature": 0.7, "scorer": "llm"}),
        ("released_code", {"temperature": 1.0, "imagination_temperature": 0.7, "scorer": "llm", "skip_steps": 2}),
        (
            "tree_search",
            {"search": "tree", "imagination": "none", "depth": 2, "scorer": "llm", "candidates": "frequent"}
            | {"temperature": 1.0, "budget": 10},
        ),
    ],
)
def test_what_a_preset_stands_for(name, different):
    found = load_params("study").params.wmla.preset(name).model_dump()
    assert {key: found[key] for key in OWN | different} == OWN | different


def test_a_preset_states_what_differs_and_takes_the_rest_from_the_section():
    """So the control has the scorer that look-ahead has."""
    wmla = load_params("demo", {"wmla.scorer": "llm", "wmla.k": 5}).params.wmla
    assert [(wmla.preset(name).scorer, wmla.preset(name).k) for name in ("wmla_d1", "best_of_k", "veto")] == [
        ("llm", 5), ("llm", 5), ("veto", 5),
    ]  # fmt: skip


def test_a_preset_of_ones_own_is_an_arm():
    own = {"wmla.presets.wide": {"candidates": "valid", "depth": 2}, "wmla.arms": ["zero_shot+wide"]}
    ahead = parse_arm("zero_shot+wide", load_params("study", own).params).ahead
    assert (ahead.candidates, ahead.depth, ahead.scorer) == ("valid", 2, "outcome")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"wmla.presets.mine": {"dept": 2}}, "preset mine: unknown dept; known are candidates, k, "),
        ({"wmla.presets.veto.presets": {}}, "preset veto: unknown presets"),
        ({"wmla.presets.mine": {"k": 1}}, "preset mine: k is 1: Input should be greater than or equal to 2"),
        (
            {"wmla.presets.mine": {"imagination": "none"}},
            "preset mine: depth 1 with imagination none: depth 0 is no imagination, and the reverse",
        ),
        ({"wmla.presets.best_of_k.depth": 2}, "preset best_of_k: depth 2 with imagination none"),
        ({"wmla.presets.mine": {"depth": 0}}, "preset mine: depth 0 with imagination world_model"),
        (
            {"wmla.presets.webdreamer.scorer": "outcome"},
            "preset webdreamer: scorer outcome cannot read a free text: take scorer llm, or the world model",
        ),
        ({"wmla.depth": 0}, r"^wmla \(from overrides\): depth 0 with imagination world_model"),
        ({"wmla.presets": {"a+b": {}}}, r"presets: 'a\+b' is no name for a preset"),
        ({"wmla.presets": {"wmla_d2": {"k": 5}}}, "presets: 'wmla_d2' is no name for a preset"),
    ],
)
def test_a_preset_that_does_not_hold_is_refused_with_its_name(overrides, message):
    with pytest.raises(ParamsError, match=message):
        load_params("demo", overrides)


def test_a_suite_lays_its_own_params_over_the_profile_and_overrides_come_last():
    """base < profile < base's for the suite < the profile's for the suite < overrides."""
    plain = load_params("demo")
    sites = load_params("demo", {"collect.suite": "sites", "tasks.max_steps": 5})
    rows = {row["key"]: (row["value"], row["set by"]) for row in sites.rows("tasks", "browser", "collect", "sft")}
    assert rows["collect.suite"] == ("sites", "overrides") and rows["tasks.max_steps"] == ("5", "overrides")
    assert rows["browser.viewport"][1] == "base, suite sites" and rows["tasks.train"][1] == "demo, suite sites"
    assert rows["sft.learning_rate"] == (str(plain.params.sft.learning_rate), "demo")
    assert not set(sites.params.tasks.train) & set(plain.params.tasks.train)
    live = load_params("demo", {"collect.suite": "webvoyager"}).params
    assert (live.browser.offline, live.policy.reply, live.collect.judge) == (False, "generate", "llm")
    assert load_params("demo", {"collect.suite": "gaia_web"}).params.collect.judge == "answer"
    assert plain.params.browser.offline and "suites" not in plain.params.model_dump()


def test_answers_are_asked_only_of_suites_that_publish_them():
    with pytest.raises(ParamsError, match="collect.judge is answer: suite miniwob publishes no answers, as gaia_web"):
        load_params("smoke", {"collect.judge": "answer"})


@pytest.mark.parametrize(
    ("collect", "synthesize", "judges"),
    [
        ("reward", "world_model", ("llm",)),  # to be compared
        ("reward", "key_points", ("key_points",)),
        ("llm", "world_model", ("llm",)),
        ("llm", "llm", ("llm",)),
        ("key_points", "llm", ("key_points", "llm")),
    ],
)
def test_every_judge_by_a_model_that_a_profile_goes_by_is_named(collect, synthesize, judges):
    params = load_params("smoke", {"collect.judge": collect, "synthesize.judge": synthesize}).params
    assert params.judges() == judges


@pytest.mark.parametrize(
    ("arm", "key", "value"),
    [
        ("no_world_model", "synthesize.written", 0),
        ("explorer", "collect.explorer_episodes", 0),
        ("true_dreams", "synthesize.replay", "none"),
    ],
)
def test_a_data_arm_that_would_have_nothing_to_learn_from_is_refused(arm, key, value):
    with pytest.raises(ParamsError, match=f"sft.arms: {arm} has nothing to learn from: {key} is {value}"):
        load_params("smoke", {"sft.arms": [arm, "webevolver"], key: value})
    assert load_params("study", {"sft.arms": [arm], "wmla.arms": [arm]}).params.sft.arms == (arm,)


def test_which_dreams_are_replayed_is_a_word():
    assert load_params("qlora_8b").params.synthesize.replay == "accepted"
    assert [load_params(p).params.synthesize.replay for p in ("demo", "study", "paper_70b")] == ["all", "all", "none"]
    message = r"synthesize.replay is True \(from overrides\): Input should be 'none', 'accepted' or 'all'"
    with pytest.raises(ParamsError, match=message):
        load_params("demo", {"synthesize.replay": True})  # as it was written once

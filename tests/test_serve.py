"""Servers of our own: the command, start and end, adapters by name. A stand-in speaks in place of vLLM."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from stand_ins import SMOKE

from wevo_nb import cluster, lifeline, serve, vllm_server
from wevo_nb.llm import ModelError, Request, ask, metered
from wevo_nb.models import Engine, find_model, open_model
from wevo_nb.params import Params
from wevo_nb.sections import RoleParams, ServeParams
from wevo_nb.serve import ServedModel, open_engine
from wevo_nb.vllm_server import Server, adapter_name, vllm_command
from wevo_nb.worker import LentServers

HERE = Path(__file__).parent
SERVE = SMOKE.serve.model_copy(update={"startup_s": 60})
HELLO = Request(messages=({"role": "user", "content": "hello"},))
CHOOSE = HELLO.model_copy(update={"choices": ("click [1]", "click [2]")})


def standing_in(folder: Path, how: str = "well", **more) -> ServeParams:
    command = (sys.executable, str(HERE / "vllm_stand_in.py"), str(folder), how)
    return SERVE.model_copy(update={"command": command} | more)


def with_servers(folder: Path, how: str = "well", *, constraint: str = "structured_outputs", **more) -> Params:
    role = RoleParams(engine="vllm", base="org/base", constraint=constraint)
    roles = SMOKE.roles.model_copy(update={name: role for name in ("policy", "world_model", "judge", "scorer")})
    llm = SMOKE.llm.model_copy(update={"retries": 0, "timeout_s": 10})
    return SMOKE.model_copy(update={"serve": standing_in(folder, how, **more), "roles": roles, "llm": llm})


def adapter(folder: Path, weights: bytes = b"weights", base: str = "org/base") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return str(folder)


def whole_model(folder: Path) -> str:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"whole")
    return str(folder)


def asked(folder: Path) -> list[tuple[str, str]]:
    """What a stand-in was asked, in order: (route, model or adapter)."""
    told = [json.loads(line) for line in (folder / "asked.jsonl").read_text().splitlines()]
    return [(route, body.get("model") or body.get("lora_name")) for route, body in told]


def below_this() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = set(below_this())
    yield
    assert not [process for process in set(below_this()) - before if lifeline.alive(process)]


@pytest.fixture
def engine_of(tmp_path):
    """Makes engines and closes them."""
    made = []

    def make(params: Params) -> Engine:
        made.append(open_engine(params))
        made[-1].servers.logs = tmp_path / "logs"
        return made[-1]

    yield make
    for engine in made:
        engine.close()


# -- the command


def test_the_command_of_one_gpu():
    assert vllm_command(SMOKE.serve, "org/base", port=8123) == [
        "vllm", "serve", "org/base", "--host", "127.0.0.1", "--port", "8123",
        "--tensor-parallel-size", "1", "--pipeline-parallel-size", "1",
        "--max-model-len", "8192", "--gpu-memory-utilization", "0.9", "--enable-prefix-caching",
        "--enable-lora", "--max-loras", "4", "--max-lora-rank", "64",
    ]  # fmt: skip


def test_a_server_of_whole_models_is_started_without_room_for_adapters():
    whole = vllm_command(SMOKE.serve.model_copy(update={"max_adapters": 0}), "org/base", port=8123)
    assert whole == vllm_command(SMOKE.serve, "org/base", port=8123)[:-5]


def test_the_command_of_several_hosts_with_everything():
    many = {
        "command": ("python", "-m", "vllm.entrypoints.openai.api_server", "--model"),
        "tensor_parallel": 8,
        "pipeline_parallel": 2,
        "hosts": 2,
        "max_model_len": 16384,
        "memory_share": 0.85,
        "prefix_caching": False,
        "max_adapters": 2,
        "max_lora_rank": 128,
        "quantization": "fp8",
        "arguments": ("--seed", "1"),
    }
    how = SMOKE.serve.model_copy(update=many)
    assert vllm_command(how, "/models/base", port=8000) == [
        "python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/models/base",
        "--host", "127.0.0.1", "--port", "8000",
        "--tensor-parallel-size", "8", "--pipeline-parallel-size", "2", "--distributed-executor-backend", "ray",
        "--max-model-len", "16384", "--gpu-memory-utilization", "0.85", "--no-enable-prefix-caching",
        "--quantization", "fp8", "--enable-lora", "--max-loras", "2", "--max-lora-rank", "128",
        "--seed", "1",
    ]  # fmt: skip


def test_an_adapter_is_called_by_its_stage_and_its_weights(tmp_path):
    trained = adapter(tmp_path / "run/iter-2/04_self_improve/model")
    name = adapter_name(trained)
    assert name.startswith("policy-2-") and len(name) == len("policy-2-") + 12
    hashed = name.removeprefix("policy-2-")
    assert adapter_name(adapter(tmp_path / "run/iter-1/02_wm_train/model")) == f"wm-1-{hashed}"
    assert adapter_name(adapter(tmp_path / "run/04_webevolver/model")) == f"policy-webevolver-{hashed}"
    assert adapter_name(adapter(tmp_path / "mine")) == f"adapter-mine-{hashed}"
    assert adapter_name(adapter(Path(trained), b"other weights")) != name
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="empty holds no adapter_config.json"):
        adapter_name(str(tmp_path / "empty"))


# -- start and end


def test_a_server_answers_to_its_key_on_localhost_and_ends_with_its_children(tmp_path, capsys):
    with Server(standing_in(tmp_path, "child"), "org/base", tmp_path / "log") as server:
        child = psutil.Process(int((tmp_path / "child").read_text()))
        assert lifeline.alive(child) and server.url == f"http://127.0.0.1:{server.port}/v1"
        assert server._call("/v1/models", key="none")[0] == 401
        assert server._served() == {"org/base"}
    assert not lifeline.alive(child) and server.dead
    assert server.key not in (tmp_path / "log").read_text()
    shown = capsys.readouterr().out
    assert f"vllm_stand_in.py {tmp_path} child org/base --host 127.0.0.1 --port {server.port}" in shown
    assert "vLLM with org/base: 0 of at most 60 s" in shown


@pytest.mark.parametrize(
    ("log", "cure"),
    [
        ("CUDA out of memory", "lower serve.memory_share or serve.max_model_len, or raise serve.tensor_parallel"),
        (
            "ValueError: To serve at least one request, 4.0 GiB KV cache is needed",
            "lower serve.max_model_len, or raise serve.memory_share or serve.tensor_parallel",
        ),
        ("/usr/bin/python: No module named vllm", "install vLLM in an environment of its own"),
        ("OSError: [Errno 98] Address already in use", "another process was faster on the port: try again"),
        ("api_server.py: error: unrecognized arguments: --x", "take out of serve.arguments"),
        ("Segmentation fault", "its log says why"),
    ],
)
def test_what_a_server_died_of_is_told_at_once_with_the_cure(tmp_path, log, cure):
    code = "import sys; print(sys.argv[1]); sys.exit(7)"
    dying = SERVE.model_copy(update={"command": (sys.executable, "-c", code, log), "startup_s": 600})
    began = time.monotonic()
    with pytest.raises(ModelError) as told, Server(dying, "org/base", tmp_path / "log"):
        pass
    assert time.monotonic() - began < 60
    first, *_, last = str(told.value).splitlines()
    assert first.startswith("the server of org/base ended by itself (exit code 7): ") and cure in first and last == log


def test_a_cause_far_from_the_end_of_the_log_is_quoted(tmp_path):
    with pytest.raises(ModelError) as told, Server(standing_in(tmp_path, "out_of_memory"), "b", tmp_path / "log"):
        pass
    lines = str(told.value).splitlines()
    assert lines[1] == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert lines[2] == f"The end of {tmp_path / 'log'}:" and lines[-1] == "  frame 29" and len(lines) == 23


def test_a_server_that_never_gets_healthy_is_ended_at_the_deadline(tmp_path):
    slow = standing_in(tmp_path, "never_healthy", startup_s=1)
    with pytest.raises(ModelError, match="gave no answer within 1 s: raise serve.startup_s\n"):
        Server(slow, "org/base", tmp_path / "log").wait()


def test_a_command_that_is_not_there_is_told_before_anything_starts(tmp_path, engine_of):
    params = with_servers(tmp_path, command=("no-such-vllm", "serve"))
    with pytest.raises(ModelError, match="no command no-such-vllm .serve.command.: install vLLM .* engine to openai"):
        open_model(params.roles.policy, engine_of(params), params.llm)


def test_a_server_of_another_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match="serves somebody/elses, not org/base: is --served-model-name among"):
        Server(standing_in(tmp_path, "another_model"), "org/base", tmp_path / "log").wait()


def test_anothers_server_on_our_port_is_refused(tmp_path, monkeypatch):
    """It serves the very same base; ours cannot take the port and dies, or is not asked before."""
    with Server(standing_in(tmp_path), "org/base", tmp_path / "log") as other:
        monkeypatch.setattr(vllm_server, "free_port", lambda: other.port)
        with pytest.raises(ModelError, match="and refuses our key: it is another's|was faster on the port"):
            Server(standing_in(tmp_path), "org/base", tmp_path / "log2").wait()
        assert not other.dead


def test_a_server_without_our_key_is_refused(tmp_path):
    with pytest.raises(ModelError, match="answers at .* without our key: .* hand on .* VLLM_API_KEY"):
        Server(standing_in(tmp_path, "no_key"), "org/base", tmp_path / "log").wait()


def test_a_server_that_does_not_listen_to_sigterm_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(lifeline, "GRACE_S", 1.0)
    with Server(standing_in(tmp_path, "stubborn"), "org/base", tmp_path / "log") as server:
        below = psutil.Process(server.process.pid).children()
    assert len(below) == 1 and not lifeline.alive(below[0])
    assert (tmp_path / "log").read_text().splitlines()[-1] == "I stay"


def test_a_server_ends_when_its_owner_is_killed(tmp_path):
    """SIGKILL: nothing of the owner's runs any more. Its server and what that had started are gone soon after."""
    params = standing_in(tmp_path, "child").model_dump_json()
    code = (
        "import sys, time; from pathlib import Path; from wevo_nb.sections import ServeParams; "
        "from wevo_nb.vllm_server import Server; server = Server(ServeParams.model_validate_json(sys.argv[1]), 'b', "
        "Path(sys.argv[2])); server.wait(); print('pid', server.process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, params, str(tmp_path / "log")], stdout=subprocess.PIPE) as owner:
        line = next(line for line in owner.stdout if line.startswith(b"pid"))
        running = [psutil.Process(int(line.split()[1]))]
        running += running[0].children(recursive=True)
        assert len(running) == 3 and int((tmp_path / "child").read_text()) in {p.pid for p in running}
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any(map(lifeline.alive, running)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(lifeline.alive, running))


def test_a_server_ends_with_its_owner(tmp_path):
    params = standing_in(tmp_path, "child").model_dump_json()
    code = (
        "import sys; from pathlib import Path; from wevo_nb.sections import ServeParams; "
        "from wevo_nb.vllm_server import Server; Server(ServeParams.model_validate_json(sys.argv[1]), 'b', "
        "Path(sys.argv[2])).wait(); raise SystemExit('forgotten')"
    )
    done = subprocess.run([sys.executable, "-c", code, params, str(tmp_path / "log")], capture_output=True, text=True)
    assert done.stderr == "forgotten\n"
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or not lifeline.alive(psutil.Process(child))


def test_a_proxy_does_not_stand_between_us_and_our_server(tmp_path, monkeypatch, engine_of):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    params = with_servers(tmp_path)
    model = open_model(params.roles.policy, engine_of(params), params.llm)
    assert asyncio.run(ask(model, HELLO)).text == "I am org/base"


# -- GPU memory


@pytest.fixture
def in_use(monkeypatch) -> Callable:
    """`in_use(MiB, ...)`: what the GPU's memory is at each look, the last for ever."""

    def looks(*told: int):
        left = list(told)
        monkeypatch.setattr(vllm_server, "gpu_memory", lambda: left.pop(0) if len(left) > 1 else left[0])

    return looks


def test_memory_is_what_nvidia_smi_says_of_the_visible_gpus(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\ncase "$*" in *"-i 1"*) echo 500;; *) echo 81000; echo 500;; esac\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert vllm_server.gpu_memory() == 81500
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert vllm_server.gpu_memory() == 500
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert vllm_server.gpu_memory() is None
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert vllm_server.gpu_memory() is None


def test_closing_waits_until_the_gpu_memory_is_free_again(tmp_path, in_use):
    in_use(1000, 71000, 72000, 71900, 40000, 1400)  # before, with it, at close, then falling
    Server.__enter__(server := Server(standing_in(tmp_path), "org/base", tmp_path / "log"))
    server.close()
    assert vllm_server.gpu_memory() == 1400 and server.dead


def test_memory_that_is_not_given_back_is_an_error(tmp_path, in_use, monkeypatch):
    monkeypatch.setattr(vllm_server, "RELEASE_S", 0.5)
    in_use(1000, 71000, 71000, 60000)
    Server.__enter__(server := Server(standing_in(tmp_path), "org/base", tmp_path / "log"))
    with pytest.raises(ModelError, match="has ended, and 60000 MiB of GPU memory are in use still, of 71000 before"):
        server.close()
    assert server.dead


async def test_a_server_whose_memory_stays_does_not_keep_the_others_running(tmp_path, engine_of, in_use, monkeypatch):
    monkeypatch.setattr(vllm_server, "RELEASE_S", 0.1)
    params = with_servers(tmp_path, memory_share=0.5)
    engine = engine_of(params)
    in_use(1000, 41000)  # of the GPU before and after the first; the second takes nothing more
    base = open_model(params.roles.judge, engine, params.llm)
    other = open_model(params.roles.policy, engine, params.llm, trained=whole_model(tmp_path / "other"))
    for model in (base, other, base):  # the first is the one asked last, and so the first to end
        await ask(model, HELLO)
    running = list(engine.servers.running.values())
    with pytest.raises(ModelError, match="the server of org/base has ended, and 41000 MiB"):
        engine.release()
    assert all(server.dead for server in running) and not engine.servers.running


# -- models of an engine


async def test_two_adapters_on_one_base_answer_each_as_itself(tmp_path, engine_of):
    """As a notebook does it: open the engine, a policy and a world model, ask both; then end."""
    params = with_servers(tmp_path)
    engine = engine_of(params)
    opened = lambda role, **how: open_model(role, engine, params.llm, **how)  # noqa: E731
    policy_folder = adapter(tmp_path / "iter-1/04_self_improve/model", b"policy")
    world_folder = adapter(tmp_path / "iter-1/02_wm_train/model", b"world")
    policy = opened(params.roles.policy, trained=policy_folder, name="self_improve_1")
    world = opened(params.roles.world_model, trained=world_folder, name="world_model")
    base = opened(params.roles.judge)
    assert not engine.servers.running  # nothing starts before it is asked
    with metered() as meter:
        replies = await asyncio.gather(*(ask(model, HELLO) for model in (policy, world, base)))
        chosen = await ask(policy, CHOOSE)
    names = [adapter_name(policy_folder), adapter_name(world_folder), "org/base"]
    assert [reply.text for reply in replies] == [f"I am {name}" for name in names]
    assert chosen.text == "click [2]"
    assert (policy.usage.calls, world.usage.calls, base.usage.calls, meter.calls) == (
        2,
        1,
        1,
        4,
    )  # the probe is nobody's
    order = asked(tmp_path)
    assert order[0] == ("completions", "org/base")  # the probe comes first, once
    assert [one for one in order if one[0] == "load_lora_adapter"] == [("load_lora_adapter", n) for n in names[:2]]
    assert len(order) == 1 + 2 + 2 + 4  # the constraint's probe, the adapters, that of chances, the questions
    [server] = engine.servers.running.values()
    told = engine.describe(policy)
    assert {key: told[key] for key in ("name", "served", "url", "base")} == {
        "name": "self_improve_1", "served": names[0], "url": server.url, "base": "org/base",
    }  # fmt: skip
    assert len(told["weights"]) == 1 and told["weights"] != engine.describe(world)["weights"]
    assert engine.describe(base)["weights"] == []
    engine.release()
    assert not engine.servers.running and server.dead
    assert (await ask(world, HELLO)).text == f"I am {names[1]}"  # a question starts it anew


async def test_served_models_tell_the_chances_of_choices(tmp_path, engine_of):
    """1 to 2, of an adapter and of the base. What finds out that the server tells them comes once, uncounted."""
    params = with_servers(tmp_path)
    engine = engine_of(params)
    trained = adapter(tmp_path / "iter-1/04_self_improve/model", b"policy")
    policy = open_model(params.roles.policy, engine, params.llm, trained=trained)
    base = open_model(params.roles.judge, engine, params.llm)
    for model in (policy, base):
        reply = await ask(model, CHOOSE)
        assert reply.text == "click [2]" and model.usage.calls == 1 and model.about()["tells_chances"]
        assert [math.exp(p) for p in reply.logprobs] == pytest.approx([1 / 3, 2 / 3])
    calls = [name for route, name in asked(tmp_path) if route == "completions"]
    assert calls == ["org/base", *[policy.served] * 3, "org/base"]  # a probe of the constraint, two of the chances


async def test_at_most_max_adapters_lie_on_a_base_and_the_longest_unasked_goes(tmp_path, engine_of):
    params = with_servers(tmp_path, max_adapters=2)
    engine = engine_of(params)
    folders = [adapter(tmp_path / f"iter-{i}/04_self_improve/model", b"%d" % i) for i in (1, 2, 3)]
    first, second, third = [open_model(params.roles.policy, engine, params.llm, trained=folder) for folder in folders]
    for model in (first, second, first, third, second):
        assert (await ask(model, HELLO)).text == f"I am {model.served}"
    moves = [(route.partition("_")[0], name) for route, name in asked(tmp_path) if "lora" in route]
    assert moves == [
        ("load", first.served), ("load", second.served), ("unload", second.served), ("load", third.served),
        ("unload", first.served), ("load", second.served),
    ]  # fmt: skip


async def test_weights_that_change_after_opening_are_not_served_under_the_old_name(tmp_path, engine_of):
    params = with_servers(tmp_path)
    folder = adapter(tmp_path / "iter-1/04_self_improve/model", b"old")
    model = open_model(params.roles.policy, engine_of(params), params.llm, trained=folder)
    adapter(Path(folder), b"new")
    with pytest.raises(ModelError, match="holds other weights than when it was opened"):
        await ask(model, HELLO)


@pytest.mark.parametrize(("share", "at_once"), [(0.9, 1), (0.5, 2)])
async def test_a_whole_model_has_its_own_server_and_one_ends_where_memory_is_for_one(
    tmp_path, engine_of, share, at_once
):
    params = with_servers(tmp_path, memory_share=share)
    engine = engine_of(params)
    trained = whole_model(tmp_path / "iter-1/04_self_improve/model")
    base = open_model(params.roles.judge, engine, params.llm)
    policy = open_model(params.roles.policy, engine, params.llm, trained=trained, name="self_improve_1")
    assert (await ask(base, HELLO)).text == "I am org/base"
    earlier = engine.servers.running["org/base"]
    assert (await ask(policy, HELLO)).text == f"I am {trained}"
    assert list(engine.servers.running) == (["org/base", trained] if at_once == 2 else [trained])
    assert earlier.dead == (at_once == 1)
    assert len(engine.describe(policy)["weights"]) == 1
    assert (await ask(base, HELLO)).text == "I am org/base"


async def test_servers_that_take_turns_for_ever_are_told_how_to_stand_side_by_side(tmp_path, engine_of, monkeypatch):
    monkeypatch.setattr(serve, "MOST_STARTS", 2)
    params = with_servers(tmp_path)
    engine = engine_of(params)
    one = open_model(params.roles.judge, engine, params.llm)
    two = open_model(params.roles.policy, engine, params.llm, trained=whole_model(tmp_path / "other"))
    for model in (one, two, one, two):
        await ask(model, HELLO)
    with pytest.raises(ModelError, match="org/base was started 2 times, in turns with others: set serve.memory_share"):
        await ask(one, HELLO)


async def test_opening_an_engine_again_ends_what_the_earlier_one_has_running(tmp_path, engine_of):
    """As when a cell of a notebook is run twice."""
    params = with_servers(tmp_path)
    engine = engine_of(params)
    await ask(open_model(params.roles.policy, engine, params.llm), HELLO)
    [server] = engine.servers.running.values()
    engine_of(params)
    assert server.dead and not engine.servers.running


async def test_a_server_with_calls_under_way_is_not_ended_for_another(tmp_path, engine_of):
    params = with_servers(tmp_path)
    engine = engine_of(params)
    one = open_model(params.roles.judge, engine, params.llm)
    two = open_model(params.roles.policy, engine, params.llm, trained=whole_model(tmp_path / "other"))
    async with engine.servers.asked(one) as server:
        waiting = asyncio.create_task(ask(two, HELLO))
        await asyncio.sleep(0.5)
        assert not waiting.done() and not server.dead
    assert (await waiting).text == f"I am {two.served}" and server.dead


@pytest.mark.parametrize("how", ["no_constraint", "rambles"])
async def test_a_server_that_ignores_the_constraint_is_refused_before_any_question(tmp_path, engine_of, how):
    params = with_servers(tmp_path, how)
    engine = engine_of(params)
    model = open_model(params.roles.policy, engine, params.llm)
    with pytest.raises(ModelError, match="ignored the constraint 'structured_outputs'.*set roles.*constraint"):
        await ask(model, HELLO)
    assert asked(tmp_path) == [("completions", "org/base")] and not engine.servers.running
    free = with_servers(tmp_path, how, constraint="none")  # nothing is to be bound: nothing is tried
    model = open_model(free.roles.policy, engine_of(free), free.llm)
    assert (await ask(model, HELLO)).text == "I am org/base"
    assert len(asked(tmp_path)) == 2


def test_an_adapter_over_another_base_is_refused_before_a_server_starts(tmp_path, engine_of):
    params = with_servers(tmp_path)
    engine = engine_of(params)
    other = adapter(tmp_path / "iter-1/04_self_improve/model", base="org/other")
    with pytest.raises(ModelError, match="is one over org/other, and its role's base is org/base: name org/other"):
        open_model(params.roles.policy, engine, params.llm, trained=other)
    with pytest.raises(ModelError, match="is one over org/other"):
        open_model(params.roles.policy.model_copy(update={"adapter": other}), engine, params.llm)
    assert not engine.servers.running


async def test_a_server_without_room_for_adapters_says_so_and_what_makes_room(tmp_path, engine_of):
    params = with_servers(tmp_path, max_adapters=0)
    folder = adapter(tmp_path / "iter-1/04_self_improve/model")
    model = open_model(params.roles.policy, engine_of(params), params.llm, trained=folder)
    with pytest.raises(ModelError, match="^serve.max_adapters is 0, and policy-1-.* is an adapter: --set serve.max_ad"):
        await ask(model, HELLO)


async def test_an_adapter_that_the_server_does_not_take_is_told(tmp_path, engine_of):
    params = with_servers(tmp_path, "no_adapters")
    folder = adapter(tmp_path / "iter-1/04_self_improve/model")
    model = open_model(params.roles.policy, engine_of(params), params.llm, trained=folder)
    with pytest.raises(ModelError, match="did not take policy-1-.*rank 128 .*within serve.max_lora_rank 64"):
        await ask(model, HELLO)


async def test_a_server_that_dies_of_an_adapter_is_told_with_the_cure(tmp_path, engine_of):
    params = with_servers(tmp_path, "no_memory_for_adapters")
    engine = engine_of(params)
    trained = adapter(tmp_path / "iter-1/04_self_improve/model")
    model = open_model(params.roles.policy, engine, params.llm, trained=trained)
    with pytest.raises(ModelError, match="ended by itself .exit code 1.: lower serve.memory_share"):
        await ask(model, HELLO)
    assert not engine.servers.running


async def test_a_server_that_dies_under_a_question_is_told_and_started_anew(tmp_path, engine_of):
    params = with_servers(tmp_path)
    model = open_model(params.roles.policy, engine_of(params), params.llm)
    await ask(model, HELLO)
    with pytest.raises(ModelError, match="ended by itself .exit code 3.(.|\n)*EngineDeadError: the engine has died"):
        await ask(model, Request(messages=({"role": "user", "content": "die"},)))
    assert (await ask(model, HELLO)).text == "I am org/base"


async def test_no_question_starts_no_server(tmp_path, engine_of):
    params = with_servers(tmp_path)
    engine = engine_of(params)
    model = open_model(params.roles.policy, engine, params.llm)
    assert isinstance(model, ServedModel) and await model([]) == [] and not engine.servers.running


def test_an_engine_without_servers_says_who_makes_one_with_them(tmp_path):
    params = with_servers(tmp_path)
    engine = Engine(params.llm)
    with pytest.raises(ModelError, match="engine vllm needs servers: make the Engine with serve.open_engine"):
        open_model(params.roles.policy, engine, params.llm)
    engine.close()


async def test_the_log_lies_in_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("WEVO_OUTPUTS", str(tmp_path / "outputs"))
    params = with_servers(tmp_path)
    engine = open_engine(params, "mine")
    await ask(open_model(params.roles.policy, engine, params.llm), HELLO)
    engine.close()
    [log] = (tmp_path / "outputs/mine/servers").iterdir()
    assert log.read_text().startswith(f"$ {sys.executable} ")


def test_a_free_port_is_free():
    with socket.socket() as taking:
        taking.bind(there := ("127.0.0.1", vllm_server.free_port()))
        assert taking.getsockname() == there and there[1] > 0


# -- lent to workers


async def test_a_server_is_lent_to_workers_and_held_as_long(tmp_path, engine_of):
    """A worker asks the notebook's server, by its key and the adapter's name there; no other server is started."""
    params = with_servers(tmp_path)
    engine = engine_of(params)
    trained = adapter(tmp_path / "policy")
    policy = open_model(params.roles.policy, engine, params.llm, trained=trained, name="policy_1")
    async with cluster.lend({"policy": policy}) as lent:
        [server] = engine.servers.running.values()
        assert lent["policy_1"].model_dump() == {"url": server.url, "served": policy.served, "key": server.key}
        assert engine.servers._asking[policy.base, policy.served] == 1
        worker = Engine(params.llm, servers=LentServers(lent, params.llm))
        there = open_model(params.roles.policy, worker, params.llm, trained=trained, name="policy_1")
        assert (await ask(there, CHOOSE)).text in CHOOSE.choices and there.usage.calls == 1
        await there.endpoint.client.close()
        worker.close()
        assert not server.dead
    assert engine.servers._asking[policy.base, policy.served] == 0
    assert asked(tmp_path)[-1] == ("completions", policy.served)


@pytest.mark.scale
def test_the_notebooks_run_on_servers_of_their_own(tmp_path):
    """Every role on one base; what 02 and 04 train are adapters on it. Each kernel ends its server."""
    roles = [f"roles.{role}.engine=vllm" for role in ("policy", "world_model", "judge", "scorer")]
    settings = [*roles, f"serve.command=[{', '.join(standing_in(tmp_path).command)}]"]
    settings += ["sft.method=lora", "world_model_sft.method=lora", "iterations=1"]
    words = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "wevo_nb.cli", "run", "--profile", "smoke", *words],
        env=os.environ | {"WEVO_OUTPUTS": str(tmp_path / "outputs"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    run = tmp_path / "outputs/smoke"
    policy, final = adapter_name(run / "iter-1/04_self_improve/model"), adapter_name(run / "04_webevolver/model")
    world = adapter_name(run / "iter-1/02_wm_train/model")
    told = json.loads((run / "03_synthesize/manifest.json").read_text())["models"]
    assert [told[role]["served"] for role in ("policy", "world_model")] == [policy, world]
    assert {name for route, name in asked(tmp_path) if route == "completions"} == {
        find_model("tiny"), policy, final, world,
    }  # fmt: skip
    logs = sorted((run / "servers").iterdir())
    assert len(logs) == 4  # of notebooks 01, 02, 03 and 05
    ports = {re.search(r"--port (\d+)", log.read_text())[1] for log in logs}
    assert not [one for one in psutil.process_iter(["cmdline"]) if ports & set(one.info["cmdline"] or [])]

"""The command line and the chain of notebooks, with real kernels on throw-away notebooks.

The notebooks here open, fill and finish a real stage (runs.py) in place of the long work; the
command runs in a process of its own, as a user's does, so exit statuses and signals are real.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import nbformat
import psutil
import pytest

from wevo_nb import chain
from wevo_nb.params import ParamsError, load_params
from wevo_nb.schema import Action, Decision, Observation, Step, Task, Trajectory, Verdict

PARAMETERS = 'profile = "demo"\nrun = "demo"\niteration = 1\noverrides = {}'
OPEN = """
from wevo_nb.llm import Usage
from wevo_nb.params import load_params
from wevo_nb.runs import JSONL, open_stage
stage = open_stage(run, f"iter-{iteration}/02_wm_train", load_params(profile, overrides), sections=("world_model",))
"""
FINISH = """
if not stage.done:
    stage.track(world_model=Usage(calls=2, prompt_tokens=30))
    stage.finish(metrics={"rows": 3})
"""
RUN_02 = ("run", "--only", "02", "--iteration", "1")
LAUNCH = "import sys, pathlib; from wevo_nb import chain, cli; chain.ROOT = pathlib.Path(sys.argv.pop(1)); cli.app()"


class Project:
    """A folder with notebooks of our own, and the command run on it."""

    def __init__(self, folder: Path):
        self.folder, self.outputs = folder, folder / "outputs"
        (folder / "notebooks").mkdir()
        self.environment = {**os.environ, "WEVO_OUTPUTS": str(self.outputs), "COLUMNS": "200"}

    def notebook(self, name: str, *cells: str):
        parameters = nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
        notebook = nbformat.v4.new_notebook(cells=[parameters, *map(nbformat.v4.new_code_cell, cells)])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, self.folder / "notebooks" / f"{name}.ipynb")

    def start(self, *words: str) -> subprocess.Popen:
        command = [sys.executable, "-c", LAUNCH, str(self.folder), *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.environment, text=True, cwd=self.folder.parent, **pipes)

    def wevo(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path)


def test_a_plan_has_the_papers_order_and_each_04_its_arm():
    steps = chain.plan("demo", {"iterations": 2})
    assert [step.stage for step in steps] == [
        "iter-1/01_collect", "iter-1/02_wm_train", "iter-1/04_self_improve",
        "iter-2/01_collect", "iter-2/02_wm_train", "iter-2/04_self_improve",
        "03_synthesize", "04_webevolver", "05_wmla", "06_analysis",
    ]  # fmt: skip
    arms = {step.stage: step.resolved.params.sft.arm for step in steps if step.notebook == "04_final_sft"}
    assert arms == {
        "iter-1/04_self_improve": "self_improve",
        "iter-2/04_self_improve": "self_improve",
        "04_webevolver": "webevolver",
    }
    assert steps[8].parts[:2] == ["05_wmla/zero_shot", "05_wmla/self_improve_1"]
    late = chain.plan("demo", {"world_model": {"first_iteration": 2}})
    assert [step.stage for step in late] == [step.stage for step in steps if step.stage != "iter-1/02_wm_train"]


@pytest.mark.parametrize(
    ("only", "iteration", "overrides", "stages"),
    [
        (["04"], 1, {}, ["iter-1/04_self_improve"]),
        (["02"], None, {}, ["iter-1/02_wm_train", "iter-2/02_wm_train"]),
        (["2"], 2, {}, ["iter-2/02_wm_train"]),
        (["4, 05"], None, {"sft": {"arm": "webevolver"}}, ["04_webevolver", "05_wmla"]),
        (["05"], None, {"sft": {"arms": ["mixed"]}, "wmla": {"arms": ["mixed"]}}, ["05_wmla"]),
        (["04"], 2, {"sft": {"arms": ["mixed", "real_only"]}, "wmla": {"arms": ["mixed"]}}, ["iter-2/04_self_improve"]),
        (
            ["04"],
            None,
            {"sft": {"arms": ["mixed", "real_only"], "arm": "mixed"}, "wmla": {"arms": ["mixed"]}},
            ["04_mixed"],
        ),
        (["04"], None, {"sft": {"arm": "webevolver"}}, ["04_webevolver"]),
        (["03", "05_wmla"], None, {}, ["03_synthesize", "05_wmla"]),
    ],
)
def test_only_chooses_the_notebooks_it_names(only, iteration, overrides, stages):
    chosen = chain.choose(chain.plan("demo", overrides), only, iteration, overrides)
    assert [step.stage for step in chosen] == stages


@pytest.mark.parametrize(
    ("only", "iteration", "overrides", "message"),
    [
        (["07"], None, {}, "--only 07 names no notebook"),
        ([], 1, {}, "--iteration goes with --only"),
        (["02"], 3, {}, "no iteration 3 of 02: see --iterations$"),
        (["02"], 1, {"world_model": {"first_iteration": 2}}, r"no iteration 1 of 02: .+\.first_iteration 2 on$"),
        ([], None, {"sft": {"arm": "webevolver"}}, "sets sft.arm itself"),
    ],
)
def test_only_refuses_what_has_no_sense(only, iteration, overrides, message):
    with pytest.raises(ParamsError, match=message):
        chain.choose(chain.plan("demo", overrides), only, iteration, overrides)


def test_time_left_counts_what_was_done_since_the_first_look():
    first = {}
    assert chain.pace({"label": "collect", "n": 100, "total": 320, "seconds": 50.0}, first) == "collect 100/320"
    line = chain.pace({"label": "collect", "n": 120, "total": 320, "seconds": 60.0}, first)
    assert line == "collect 120/320, 1:40 left"  # 20 in 10 s, 200 to go


def test_a_run_is_executed_once_then_skipped_then_refused_when_params_change(project):
    project.notebook("02_wm_train", OPEN, FINISH)
    setting = ("--set", "world_model.report_rows=7")
    code, out, err = project.wevo(*RUN_02, *setting)
    assert (code, err) == (0, "")
    assert "iter-1/02_wm_train  to do" in out and "results go to" in out

    stage = project.outputs / "demo/iter-1/02_wm_train"
    executed = json.loads((stage / "notebook.ipynb").read_text())
    given = executed["metadata"]["papermill"]["parameters"]
    assert given == {
        "profile": "demo", "run": "demo", "iteration": 1, "overrides": {"world_model": {"report_rows": 7}}
    }  # fmt: skip
    assert json.loads((stage / "params.json").read_text())["params"]["world_model"]["report_rows"] == 7
    before = (stage / "notebook.ipynb").stat().st_mtime_ns

    code, out, _ = project.wevo(*RUN_02, *setting)
    assert code == 0 and "iter-1/02_wm_train  done" in out
    assert (stage / "notebook.ipynb").stat().st_mtime_ns == before, "a finished stage was executed again"

    code, _, err = project.wevo(*RUN_02, "--set", "world_model.report_rows=8")
    assert code == 2 and "world_model.report_rows: 7 there, 8 now" in err

    code, out, _ = project.wevo(*RUN_02, "--set", "world_model.report_rows=8", "--fresh")
    assert code == 0 and (stage.parent / "02_wm_train.old-1/manifest.json").exists()
    assert json.loads((stage / "params.json").read_text())["params"]["world_model"]["report_rows"] == 8

    code, out, _ = project.wevo("status")
    row = next(line.split() for line in out.splitlines() if "iter-1/02_wm_train" in line)
    assert row[1] == "done" and row[-2:] == ["2", "30"]  # calls, tokens
    assert "not begun" in next(line for line in out.splitlines() if "03_synthesize" in line)


INTERRUPTED = """\
session = get_ipython().kernel.session

def interrupted(stream, kind, *more, send=session.send, **how):
    sent = send(stream, kind, *more, **how)
    if kind == "execute_reply":
        raise KeyboardInterrupt
    return sent

session.send = interrupted"""


def test_the_interrupt_that_ends_a_kernel_is_no_error_of_the_run(project):
    """On a busy machine it reaches a kernel that is not yet through with its last cell, and the kernel logs it."""
    project.notebook("02_wm_train", OPEN, FINISH, INTERRUPTED)
    assert project.wevo(*RUN_02)[::2] == (0, "")


def test_the_notebooks_error_is_shown_in_a_line_and_the_next_run_goes_on(project, tmp_path):
    mended = tmp_path / "mended"
    fault = f"import pathlib\nif not pathlib.Path({str(mended)!r}).exists():\n    raise ValueError('row 3 is too long')"
    project.notebook("02_wm_train", OPEN, fault, FINISH)
    code, out, err = project.wevo(*RUN_02)
    assert code == 1
    assert "ValueError: row 3 is too long" in err and "Traceback" not in err + out
    failed = project.outputs / "demo/failed/iter-1-02_wm_train.ipynb"
    assert str(failed) in err and "row 3 is too long" in failed.read_text()
    assert not (project.outputs / "demo/iter-1/02_wm_train/manifest.json").exists()

    mended.touch()
    assert project.wevo(*RUN_02)[0] == 0
    assert not failed.exists() and (project.outputs / "demo/iter-1/02_wm_train/notebook.ipynb").exists()


def test_a_killed_kernel_is_reported_and_its_work_is_kept(project, tmp_path):
    once = tmp_path / "once"
    records = "from wevo_nb.schema import Task\nimport os, pathlib\nfile = JSONL(stage.path('tasks.jsonl'), Task)"
    work = (
        f"for i in range(6):\n    file.append(Task(suite='s', name='n', seed=i))\n"
        f"    if i == 2 and not pathlib.Path({str(once)!r}).exists():\n"
        f"        pathlib.Path({str(once)!r}).touch()\n        os.kill(os.getpid(), 9)"
    )
    project.notebook("02_wm_train", OPEN, records, work, FINISH)
    code, _, err = project.wevo(*RUN_02)
    assert code == 1 and "the kernel died" in err
    stage = project.outputs / "demo/iter-1/02_wm_train"
    assert not (stage / "manifest.json").exists() and not (stage / "notebook.ipynb").exists()
    assert len((stage / "tasks.jsonl").read_text().splitlines()) == 3

    code, out, _ = project.wevo(*RUN_02)
    assert code == 0 and "begun, goes on where it was" in out
    assert len((stage / "tasks.jsonl").read_text().splitlines()) == 6, "something was lost or doubled"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_kernel_and_what_it_started(project, number):
    wait = (
        "import subprocess\nchild = subprocess.Popen(['sleep', '300'])\n"
        "stage.note_progress(str(child.pid), 0, 1)\nchild.wait()"
    )
    project.notebook("02_wm_train", OPEN, wait, FINISH)
    process = project.start(*RUN_02)
    progress = project.outputs / "demo/iter-1/02_wm_train/progress.json"
    deadline = time.time() + 60
    while not progress.exists() and time.time() < deadline:
        time.sleep(0.2)
    noted = json.loads(progress.read_text())
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "goes on where it was" in err
    gone = [pid for pid in (noted["pid"], int(noted["label"])) if not _runs(pid)]
    assert gone == [noted["pid"], int(noted["label"])]
    assert "interrupted" in project.wevo("status")[1]


def test_a_kernel_of_the_users_named_python3_does_not_win(project, tmp_path):
    user = tmp_path / "home/.local/share/jupyter/kernels/python3"
    user.mkdir(parents=True)
    spec = {"argv": ["/bin/false"], "display_name": "mine", "language": "python"}
    (user / "kernel.json").write_text(json.dumps(spec))
    project.environment |= {"HOME": str(tmp_path / "home"), "JUPYTER_DATA_DIR": str(user.parent.parent)}
    project.notebook("02_wm_train", OPEN, "import sys\nstage.path('python.txt').write_text(sys.prefix)", FINISH)
    assert project.wevo(*RUN_02)[0] == 0
    assert (project.outputs / "demo/iter-1/02_wm_train/python.txt").read_text() == sys.prefix


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "--profile", "demmo"), "no profile 'demmo'"),
        (("run", "--set", "wmla.kk=5"), "did you mean wmla.k?"),
        (("run", "--set", "wmla.k=0"), "wmla.k is 0"),
        (("run", "--run", "a/b"), "is no folder name"),
        (("run",), "there is no notebooks/01_collect.ipynb"),
        (("status", "--run", "never"), "there is no run 'never'"),
        (("show", "nowhere.jsonl"), "no file nowhere.jsonl"),
    ],
)
def test_bad_input_is_one_message_and_exit_status_2(project, words, message):
    code, _, err = project.wevo(*words)
    assert code == 2 and message in err and "Traceback" not in err


@pytest.mark.browser
def test_a_missing_browser_is_said_before_anything_runs(project):
    project.environment["WEVO_CHROMIUM"] = "/no/such/chromium"
    project.notebook("01_collect", "raise AssertionError('executed')")
    code, _, err = project.wevo("run", "--only", "01", "--iteration", "1")
    assert code == 2 and "/no/such/chromium" in err
    assert not (project.outputs / "demo/iter-1").exists()


def test_show_prints_every_page_thought_action_and_the_verdict(project):
    task = Task(suite="miniwob", name="click-button", seed=7, goal="Click on the OK button.")
    decision = Decision(
        reply="Thought: I will click button 'OK'. Action: ```click [2]```", action=Action(verb="click", id=2)
    )
    trajectory = Trajectory(
        task=task, policy="zero_shot", environment="browser", ended="done",
        steps=(Step(observation=Observation(text="[1] text 'Hello'\n[2] button 'OK'"), decision=decision),),
        final=Observation(text="[1] text 'Bye'", note="it went", done=True, reward=1.0),
        verdict=Verdict(outcome="success", judge="reward"),
    )  # fmt: skip
    stage = project.outputs / "demo/iter-1/01_collect"
    stage.mkdir(parents=True)
    (stage / "trajectories.jsonl").write_text(trajectory.model_dump_json() + "\n")
    for name in ("demo/iter-1/01_collect", "demo/iter-1/01_collect#0", f"{stage}/trajectories.jsonl#{trajectory.key}"):
        code, out, err = project.wevo("show", name)
        assert (code, err) == (0, "")
        for words in ("Click on the OK button.", "[2] button 'OK'", "I will click button 'OK'.", "action: click [2]",
                      "note: it went", "reward 1", "verdict of reward: success"):  # fmt: skip
            assert words in out
    code, _, err = project.wevo("show", "demo/iter-1/01_collect#4")
    assert code == 2 and "holds 1 trajectories" in err


def test_a_run_keeps_to_the_profile_it_was_begun_with(project):
    (project.outputs / "mine").mkdir(parents=True)
    (project.outputs / "mine/run.json").write_text('{"profile": "smoke"}')
    code, _, err = project.wevo("run", "--run", "mine", "--profile", "demo")
    assert code == 2 and "run 'mine' belongs to profile smoke, not demo" in err
    assert chain.profile_of("never") == "demo"


def test_params_shows_the_layer_of_each_value(project):
    code, out, _ = project.wevo("params", "--set", "wmla.k=5")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert code == 0 and rows["wmla.k"] == ["5", "overrides"] and rows["synthesize.horizon"] == ["7", "base"]
    assert load_params("demo").params.wmla.k == 3


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_interrupt_that_is_swallowed_still_ends_the_watch(tmp_path):
    """The exception can come up where nothing may be raised; that a signal came is known all the same."""
    chain.STOPPED.set()
    try:
        with pytest.raises(KeyboardInterrupt):
            chain._watch(Future(), tmp_path, lambda line: None)
    finally:
        chain.STOPPED.clear()

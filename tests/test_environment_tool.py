"""tools/environment.py: what it checks and how it fails, on folders of our own.

The whole way (a fresh clone, `make demo`, `make test`) is what `.ci/run` does.
"""

from __future__ import annotations

import http.server
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "environment.py"


@pytest.fixture
def project(tmp_path) -> Path:
    """A checkout with only what the tool reads."""
    (tmp_path / "tools").mkdir()
    for name in ("tools/environment.py", "pyproject.toml", "requirements-nodeps.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def tool(project):
    """The tool as a module that works on `project`."""
    spec = importlib.util.spec_from_file_location("environment", project / "tools" / "environment.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def complete(tool):
    """Makes the tool's .venv look as after a good installation."""
    (tool.VENV / "bin").mkdir(parents=True)
    python = tool.VENV / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    tool.PLACE.write_text(str(tool.ROOT))
    tool.write(tool.INSTALLED, {"fingerprint": tool.fingerprint()})


def run(project: Path, *words: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, project / "tools" / "environment.py", *words]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, cwd="/", timeout=120)


def test_a_complete_environment_is_left_alone_within_a_second(tool, project):
    complete(tool)
    began = time.perf_counter()
    answer = run(project, "env", PIP_NO_INDEX="1")
    assert answer.returncode == 0 and answer.stdout == f"env: {project}/.venv is complete\n"
    assert time.perf_counter() - began < 2


def test_a_changed_dependency_or_a_moved_folder_is_noticed(tool, project):
    complete(tool)
    before = tool.fingerprint()
    (project / "pyproject.toml").write_text((project / "pyproject.toml").read_text().replace("rich>=15", "rich>=14"))
    assert tool.fingerprint() != before
    assert tool.made_here()
    tool.PLACE.write_text("/somewhere/else")
    assert not tool.made_here()


def test_a_failed_installation_leaves_no_stamp_and_says_what_to_do(project):
    shut = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": "/dev/null"}
    answer = run(project, "env", **shut)
    assert answer.returncode == 1
    assert "pip could not install" in answer.stderr and "Traceback" not in answer.stderr
    assert (project / ".venv" / "bin" / "python").exists() and not (project / ".venv" / "installed.json").exists()


def test_an_unsuitable_python_is_passed_over_with_its_version(tool, project, monkeypatch):
    old = project / "python-old"
    old.write_text("#!/bin/sh\necho 3 8\n")
    old.chmod(0o755)
    monkeypatch.setenv("WEVO_PYTHON", str(old))
    with pytest.raises(tool.Stop, match=r"needs a Python from 3\.11 to 3\.14: .*python-old is 3\.8"):
        tool.find_python()
    monkeypatch.delenv("WEVO_PYTHON")
    monkeypatch.setattr(sys, "executable", str(old))
    monkeypatch.setenv("PATH", str(project))
    with pytest.raises(tool.Stop, match=r"python3\.11 is not here"):
        tool.find_python()


def test_a_disk_without_room_is_said_before_anything_is_installed(tool, monkeypatch):
    monkeypatch.setattr(tool, "GIGABYTES", 10**9)
    with pytest.raises(tool.Stop, match="GB free and the environment needs"):
        tool.make_environment()
    assert not tool.VENV.exists()


def test_an_index_is_reached_only_if_it_answers_soon(tool):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(200 if self.path == "/whl/" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, socket.socket() as silent:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_address[1]}"
        assert tool.reaches(f"{here}/whl/")
        assert not tool.reaches(f"{here}/elsewhere/")
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # takes the connection and never answers
        began = time.perf_counter()
        assert not tool.reaches(f"http://127.0.0.1:{silent.getsockname()[1]}/", seconds=0.5)
        assert time.perf_counter() - began < 2
        server.shutdown()


def test_the_browser_needs_the_environment_first(project):
    answer = run(project, "browser")
    assert answer.returncode == 1 and answer.stderr.strip() == "browser: there is no environment yet: make env"


def test_a_browser_seen_to_start_is_looked_at_again_only_when_it_changed(tool, project):
    browser = project / "chromium"
    browser.touch()
    seen = {"path": str(browser), "changed": tool.changed(str(browser)), "asked": os.environ.get("WEVO_CHROMIUM")}
    assert tool.still_there(seen)
    assert not tool.still_there(seen | {"asked": "/another"})
    os.utime(browser, (1, 1))
    assert not tool.still_there(seen)
    browser.unlink()
    assert not tool.still_there(seen)
    assert not tool.still_there({})


def test_an_attempt_tells_how_it_went(tool):
    assert tool.attempt(["true"]) == "true: done"
    assert tool.attempt(["false"]) == "false: exit status 1"
    assert tool.attempt(["sh", "-c", "echo 'E: Unable to locate it' >&2; exit 100"]).endswith("E: Unable to locate it")
    assert tool.attempt(["sleep", "9"], seconds=1) == "sleep 9: no end after 1 s"


def test_the_packages_without_dependencies_are_the_ones_that_pip_check_may_complain_of(tool):
    lines = (ROOT / "requirements-nodeps.txt").read_text().splitlines()
    named = [line.split("==")[0] for line in lines if line and not line.startswith("#")]
    assert tuple(named) == tool.WITHOUT_DEPENDENCIES
    for name in named:
        assert importlib.util.find_spec(name.replace("-", "_")), f"{name} is not installed"


@pytest.mark.browser
def test_the_look_for_a_browser_sees_text_or_says_what_is_wrong(tool, project):
    look = [sys.executable, "-c", tool.CHECK_BROWSER]
    seen = json.loads(subprocess.run(look, capture_output=True, text=True, check=True).stdout)
    assert seen["width"] > 5 and Path(seen["path"]).exists()
    broken = project / "chromium"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    environment = os.environ | {"WEVO_CHROMIUM": str(broken)}
    answer = subprocess.run(look, capture_output=True, text=True, check=True, env=environment)
    assert json.loads(answer.stdout)["broken"]


def test_a_browser_that_was_asked_for_and_is_not_there_is_not_replaced_by_another(tool, project):
    complete(tool)
    answer = run(project, "browser", WEVO_CHROMIUM="/no/such/chromium")
    assert answer.returncode == 1 and "/no/such/chromium" in answer.stderr and "tried" not in answer.stderr

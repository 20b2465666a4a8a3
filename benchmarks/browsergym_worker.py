"""BrowserGym as it is, timed on pages and MiniWoB tasks: the other side of benchmarks/environment.py.

Runs in an environment of its own, with BrowserGym's versions. Reads one JSON job from stdin and
writes one JSON result to stdout:
job     {chromium, viewport: [width, height], pages: [{url, repeats, look: [script, argument]}],
         miniwob: {url, tasks, seed, steps}}
result  {versions, pages: [{ms: [..], screenshot_ms: [..], text, visible}], miniwob: {shipped, no_waits}}
The only change: its browsers are started from the given executable, as the Playwright that it pins
would insist on a build of its own, and with a window of the asked size, which that Playwright
cannot give to so new a Chromium.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import random
import re
import statistics
import sys
import time

from browsergym.core.env import BrowserEnv
from browsergym.core.observation import extract_screenshot
from browsergym.core.task import OpenEndedTask
from browsergym.miniwob import ALL_MINIWOB_TASKS
from browsergym.utils.obs import IGNORED_AXTREE_ROLES, flatten_axtree_to_str
from playwright.sync_api import BrowserType

PACKAGES = ("browsergym-core", "browsergym-miniwob", "playwright")
# A newer Chromium than BrowserGym knows repeats every text in a node of this role: not counted against it.
IGNORED = [*IGNORED_AXTREE_ROLES, "InlineTextBox"]
CLICKABLE = re.compile(r"^\s*\[(\w+)\].*, clickable\b", re.MULTILINE)
MINIWOB_WINDOW = (332, 214)  # as its MiniWoB tasks ask for
NO_WAITS = {"slow_mo": 0, "pre_observation_delay": 0.0}


LAUNCH = BrowserType.launch


def use_chromium(path: str, width: int, height: int):
    """Starts every browser from that executable, with a window of that size."""

    def launch(self, args=(), **options):
        return LAUNCH(self, executable_path=path, args=[*args, f"--window-size={width},{height}"], **options)

    BrowserType.launch = launch


def read_page(viewport: list[int], url: str, repeats: int, look: list) -> dict:
    """Milliseconds of `repeats` observations of one page, after the first at the reset, and the last one's text.

    `visible` is what the script of `look` finds in the window: its layout is not ours to the pixel.
    """
    width, height = viewport
    task = {"start_url": url, "goal": "look around"}
    env = BrowserEnv(OpenEndedTask, task_kwargs=task, viewport={"width": width, "height": height}, **NO_WAITS)
    try:
        env.reset(seed=0)
        visible = env.page.evaluate(*look)
        whole, screenshot = [], []
        for _ in range(repeats):
            started = time.perf_counter()
            text = as_text(env._get_obs())
            whole.append(milliseconds(started))
            started = time.perf_counter()
            extract_screenshot(env.page)
            screenshot.append(milliseconds(started))
        return {"ms": whole, "screenshot_ms": screenshot, "text": text, "visible": visible}
    finally:
        env.close()


def as_text(observation: dict) -> str:
    """What a text agent is given: the visible part of the accessibility tree, with what can be clicked marked."""
    tree, extra = observation["axtree_object"], observation["extra_element_properties"]
    return flatten_axtree_to_str(tree, extra, filter_visible_only=True, with_clickable=True, ignored_roles=IGNORED)


def walk_miniwob(job: dict, **options) -> dict:
    """Mean milliseconds of a reset and of a step: clicks on random visible elements that can be clicked."""
    kinds = {kind.subdomain: kind for kind in ALL_MINIWOB_TASKS}
    resets, steps, failed = [], [], 0
    for name in job["tasks"]:
        rng = random.Random(job["seed"])
        env = BrowserEnv(kinds[name], task_kwargs={"base_url": job["url"]}, **options)
        try:
            done, taken = True, 0
            while taken < job["steps"]:
                started = time.perf_counter()
                if done:
                    observation, _ = env.reset(seed=job["seed"])
                    resets.append(milliseconds(started))
                    done = False
                    continue
                bids = CLICKABLE.findall(as_text(observation))
                started = time.perf_counter()
                observation, _, terminated, truncated, _ = env.step(f"click('{rng.choice(bids)}')")
                steps.append(milliseconds(started))
                failed += bool(observation["last_action_error"])
                done, taken = terminated or truncated, taken + 1
        finally:
            env.close()
    means = {"reset_ms": round(statistics.mean(resets), 1), "step_ms": round(statistics.mean(steps), 1)}
    return means | {"resets": len(resets), "steps": len(steps), "failed": failed}


def milliseconds(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def main():
    logging.disable(logging.WARNING)
    job = json.load(sys.stdin)
    use_chromium(job["chromium"], *job["viewport"])
    result = {"versions": {name: importlib.metadata.version(name) for name in PACKAGES}}
    result["pages"] = [read_page(job["viewport"], **page) for page in job["pages"]]
    if job["miniwob"]:
        use_chromium(job["chromium"], *MINIWOB_WINDOW)
        shipped, bare = walk_miniwob(job["miniwob"]), walk_miniwob(job["miniwob"], **NO_WAITS)
        result["miniwob"] = {"shipped": shipped, "no_waits": bare}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()

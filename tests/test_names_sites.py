"""Roles and names on the five sites, held against Chromium's tree on every page that the oracle walks through."""

from __future__ import annotations

import pytest
from test_names import compared, explained

from wevo_nb.browser import BrowserEnv
from wevo_nb.params import load_params
from wevo_nb.rollout import rollout
from wevo_nb.tasks.sites import Sites
from wevo_nb.tasks.sites.oracle import Oracle

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
PARAMS = load_params("study", {"collect.suite": "sites"}).params
WALKS = {
    "tables": ("tables-largest-city", "tables-weather"),
    "shop": ("shop-cheapest", "shop-basket", "shop-review"),
    "issues": ("issues-new", "issues-count", "issues-comment"),
    "code": ("code-author", "code-change"),
    "docs": ("docs-returns", "docs-release"),
}


class Comparing:
    """The oracle, that compares each page before it acts."""

    name = "comparing"

    def __init__(self, env: BrowserEnv):
        self.env, self.oracle, self.found, self.elements = env, Oracle(), [], 0

    async def act(self, task, history, observation):
        self.elements += len(self.env.elements)
        self.found += await compared(self.env)
        return await self.oracle.act(task, history, observation)


@pytest.fixture(scope="module")
def sites():
    with Sites() as suite:
        yield suite


@pytest.mark.parametrize("site", WALKS)
async def test_names_and_roles_are_chromiums_on_the_sites(chromium, sites, site):
    walked = 0
    for name in WALKS[site]:
        [task, *_] = [task for task in sites.tasks() if task.name == name]
        env = BrowserEnv(chromium, sites, PARAMS.browser, PARAMS.observation)
        policy = Comparing(env)
        try:
            one = await rollout(policy, env, task, max_steps=14)
        finally:
            await env.close()
        assert one.final.reward == 1.0
        assert [pair for pair in policy.found if not explained(*pair)] == []
        walked += policy.elements
    assert walked > 60

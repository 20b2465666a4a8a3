"""A browser for a module of tests: `chromium`."""

from __future__ import annotations

import pytest_asyncio
from stand_ins import SMOKE

from wevo_nb.chromium import Chromium


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium():
    async with Chromium(SMOKE.browser) as browser:
        yield browser

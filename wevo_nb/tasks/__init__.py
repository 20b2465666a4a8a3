"""Task suites. A suite lists tasks, serves their pages and knows what success is."""

from __future__ import annotations

from wevo_nb.params import Params


def open_suite(params: Params):
    """The suite that `params.tasks.suite` names; a context manager that serves its pages."""
    from wevo_nb.tasks.miniwob import MiniWoB

    suites = {"miniwob": MiniWoB}
    return suites[params.tasks.suite]()

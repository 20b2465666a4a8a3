"""What a param means is read from the comments of params/base.yaml, and every param has one."""

from __future__ import annotations

import pytest

from wevo_nb.meanings import meaning_of, meanings
from wevo_nb.params import flatten, load_params

BASE = """
# of the file, and of no key
seed: 0                # of the run
role: &role            # who answers
  engine: here         # here: in this process;
                       # there: a server
  url: a#b
first: *role
training: &training
  rate: 1
  gate: {long: 0, empty: 0}   # shares
last:
  <<: *training
  gate: {long: 1}      # none
  presets:             # names
    quick: {k: 1}      # soon
suites:
  other: {seed: 1}     # laid over
"""


def test_a_comment_goes_on_below_and_comes_along_with_an_anchor(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)
    assert meanings(tmp_path / "base.yaml") == {
        "seed": "of the run",
        "role": "who answers",
        "role.engine": "here: in this process; there: a server",
        "first.engine": "here: in this process; there: a server",
        "training.gate": "shares",
        "training.gate.long": "shares",
        "training.gate.empty": "shares",
        "last.gate": "none",
        "last.gate.long": "shares",  # said where it is defined, before the line that changes it
        "last.gate.empty": "shares",
        "last.presets": "names",
        "last.presets.quick": "soon",
        "last.presets.quick.k": "soon",
    }


@pytest.mark.parametrize("profile", ["smoke", "demo", "study", "paper_70b"])
def test_every_param_has_a_meaning(profile):
    leaves = flatten(load_params(profile).params.model_dump(mode="json"))
    assert [key for key in leaves if not meaning_of(key)] == []


def test_a_key_that_the_base_does_not_list_means_what_its_mapping_does():
    assert meaning_of("wmla.presets.mine.k") == meaning_of("wmla.presets") != ""
    assert meaning_of("tasks.no_such_key") == ""

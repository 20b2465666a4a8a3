"""environment.yml and pyproject.toml name the same packages in the same versions."""

from __future__ import annotations

import tomllib

import yaml
from packaging.requirements import Requirement

from wevo_nb.params import ROOT

FILES = ("environment.yml", "environment-vllm.yml")


def pins(lines: list[str]) -> dict[str, str]:
    found = [Requirement(line) for line in lines]
    assert len({one.name for one in found}) == len(found)
    return {one.name: str(one.specifier) for one in found}


def pip_lines(file: str) -> list[str]:
    [pip] = [one["pip"] for one in yaml.safe_load((ROOT / file).read_text())["dependencies"] if isinstance(one, dict)]
    return pip


def test_the_conda_environment_has_the_pins_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    wanted = pins(list(dict.fromkeys([*project["dependencies"], *extras])))
    assert pins(pip_lines("environment.yml")) == wanted
    assert wanted["torch"] == "==2.13.*" and wanted["bitsandbytes"] == "<0.51,>=0.50"


def test_both_environments_have_one_python():
    """As far as a file can say it: a Ray takes only processes of its own Python."""
    found = {
        file: [one for one in yaml.safe_load((ROOT / file).read_text())["dependencies"] if "python=" in one]
        for file in FILES
    }
    assert found == dict.fromkeys(FILES, ["python=3.11"])


def test_the_environment_of_vllm_agrees_where_it_has_the_same_package():
    beside, ours = pins(pip_lines("environment-vllm.yml")), pins(pip_lines("environment.yml"))
    assert beside["vllm"] == "<0.34,>=0.33"
    assert {name: beside[name] for name in beside if name in ours} == {n: ours[n] for n in beside if n in ours}

"""Which versions of PySpark are taken."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.spark_versions import CHOSEN, NEWEST_ONLY

from lavant.core.errors import MissingComponent
from lavant.pipeline.internals.versions import PYSPARK


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0", "4.3.0.dev2"])
def test_versions_that_are_known_to_work_are_taken(version: str) -> None:
    PYSPARK.check(version)


@pytest.mark.parametrize("version", ["3.5.9", "4.0.5", "4.1.4", "4.4.0", "4.10.0", "5.0.0", "unknown"])
def test_other_versions_are_refused_in_one_line(version: str) -> None:
    with pytest.raises(MissingComponent, match=f"needs pyspark>=4.2,<4.4, .*, and {version} is installed"):
        PYSPARK.check(version)


def test_the_project_asks_for_the_same_versions() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    assert str(PYSPARK) in project["optional-dependencies"]["spark"]


def test_the_oldest_version_is_tested() -> None:
    script = (Path(__file__).parents[4] / "tools" / "spark-oldest").read_text()
    assert "\npyspark={}.{}.0\n".format(*PYSPARK.oldest) in script


def test_the_tests_that_are_chosen_for_the_oldest_version_exist() -> None:
    integration = Path(__file__).parents[4] / "tests" / "integration"
    texts = {name: (integration / f"{name}.py").read_text() for name in (*NEWEST_ONLY, *CHOSEN)}
    chosen = [(name, function) for name, functions in CHOSEN.items() for function in functions]
    assert [function for name, function in chosen if f"\ndef {function}(" not in texts[name]] == []

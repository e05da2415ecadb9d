"""Every example in a docstring does what it shows."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import lavant

# The pipeline's examples want a Spark session and the command line's a terminal; both are run by tests of their own.
ELSEWHERE = ("lavant.pipeline", "lavant.cli")


def modules() -> list[str]:
    found = (module.name for module in pkgutil.walk_packages(lavant.__path__, "lavant.", onerror=_raise))
    return ["lavant", *(name for name in found if not name.startswith(ELSEWHERE))]


def _raise(name: str) -> None:
    raise ImportError(f"{name} cannot be imported")


def examples_of(name: str) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(import_module(name)) if test.examples]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_module_run(name: str) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
    for test in examples_of(name):
        report: list[str] = []
        runner.run(test, out=report.append)
        assert not report, "".join(report)


def test_there_are_examples_to_run() -> None:
    assert sum(len(examples_of(name)) for name in modules()) > 20


def test_a_wrong_example_is_found() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    report: list[str] = []
    doctest.DocTestRunner().run(wrong, out=report.append)
    assert "Expected" in "".join(report)

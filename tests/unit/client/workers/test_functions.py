"""Functions for topics are found in modules; what is wrong with a module is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lavant import Task, task
from lavant.client.workers.functions import load
from lavant.core.errors import InvalidValue

MODULE = """
import lavant

@lavant.task("B")
@lavant.task("C")
def both(task): ...

@lavant.task("A")
async def first(task): ...

again = first

def bare(task): ...
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / f"functions_{tmp_path.name}.py"
    path.write_text(MODULE)
    return str(path)


def topics(place: str, *wanted: str) -> list[tuple[str, str, bool]]:
    return [(each.topic, each.function.__name__, each.is_async) for each in load(place, wanted)]


def test_all_that_are_marked_are_found_or_those_of_some_topics(module: str) -> None:
    assert topics(module) == [("A", "first", True), ("B", "both", False), ("C", "both", False)]
    assert topics(module, "C") == [("C", "both", False)]
    assert topics(Path(module).stem, "A") == [("A", "first", True)]


def test_a_function_can_be_named_marked_or_not(module: str) -> None:
    assert topics(f"{module}:both") == [("B", "both", False), ("C", "both", False)]
    assert topics(f"{module}:bare", "X", "Y") == [("X", "bare", False), ("Y", "bare", False)]


def test_a_marked_function_can_still_be_called() -> None:
    @task("A")
    def double(task: Task) -> bytes:
        return task.input * 2

    given = Task(job=1, job_type="t", name="n", topic="A", attempt=1, input=b"ab", results={}, timeout_s=1)
    assert double(given) == b"abab"


def test_what_is_not_there_is_named(module: str) -> None:
    for place, wanted, said in [
        (module, ["Z"], "no function for topic 'Z'; it has A, B, C"),
        (f"{module}:nothing", [], "no function 'nothing'; it has both, first"),
        (f"{module}:bare", [], "no function for a topic"),
        ("no_such_module", [], "'no_such_module' cannot be imported: ModuleNotFoundError"),
        ("no/such/file.py", [], "there is no file no/such/file.py"),
    ]:
        with pytest.raises(InvalidValue, match=said):
            load(place, wanted)


def test_two_functions_for_one_topic_are_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "two_for_one_topic.py"
    path.write_text('import lavant\n@lavant.task("A")\ndef one(t): ...\n@lavant.task("A")\ndef two(t): ...\n')
    with pytest.raises(InvalidValue, match="one and two are both for topic 'A'"):
        load(str(path))


def test_a_module_that_fails_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "fails_when_it_is_run.py"
    path.write_text("x = 1\ny = x / 0\n")
    with pytest.raises(InvalidValue, match=r"ZeroDivisionError: .* \(.*fails_when_it_is_run.py, line 2\)"):
        load(str(path))


def test_a_mark_without_a_topic_is_refused() -> None:
    for wrong in ("", test_a_mark_without_a_topic_is_refused):
        with pytest.raises(InvalidValue, match="name of a topic"):
            task(wrong)  # type: ignore[arg-type]

"""Kernels on disk: found again by what they are made of, whole or not at all, and never an error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
import pytest

from lavant.core.kernels.cache import VARIABLE, cache_state, code_digest, locked, prune
from lavant.core.kernels.kernels import KERNELS, kernel

FACTOR = 2


class Pair(NamedTuple):
    first: int
    second: int


def product(x: int) -> int:
    return FACTOR * x


def difference(pair: Pair) -> int:
    return pair.first - pair.second


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of this test alone; and what it makes is not one of Lavant's kernels."""
    there = len(KERNELS)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    yield tmp_path / "kernels"
    del KERNELS[there:]


def compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What a new kernel gives, and how often it was compiled for it; as a new process would make it."""
    made: Any = kernel(function)
    result = made(*arguments)
    return result, sum(made.stats.cache_misses.values())


def test_a_kernel_is_compiled_once(directory: Path) -> None:
    assert compiled(product, 3) == (6, 1)
    assert compiled(product, 3) == (6, 0)
    assert len(list(directory.iterdir())) == 1
    assert compiled(product, 3.0) == (6.0, 1), "for other types it is another"


def test_nothing_is_left_beside_it(directory: Path) -> None:
    compiled(product, 3)
    assert [path.suffix for path in directory.iterdir()] == [".kernel"]


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other"])
def test_what_is_damaged_is_compiled_again(directory: Path, damage: str) -> None:
    compiled(product, 3)
    [path] = directory.iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes({"empty": b"", "cut": bytes(data[:-9]), "flipped": bytes(data), "other": b"x" * 999}[damage])
    assert compiled(product, 3) == (6, 1)
    assert compiled(product, 3) == (6, 0), "and is whole again"


def test_a_constant_that_changed_makes_it_another(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(product, 3)
    monkeypatch.setitem(product.__globals__, "FACTOR", 5)
    assert compiled(product, 3) == (15, 1)


def test_a_kernel_that_it_calls_and_that_changed_makes_it_another() -> None:
    def caller(called: Any) -> Any:
        scope: dict[str, Any] = {"called": called, "__name__": "there"}
        exec("def calling(x):\n    return called(x) + 1", scope)
        return scope["calling"]

    once, twice = numba.njit(lambda x: x + 1), numba.njit(lambda x: x + 2)
    assert compiled(caller(once), 3) == (5, 1)
    assert compiled(caller(once), 3) == (5, 0)
    assert compiled(caller(twice), 3) == (6, 1)


def test_fields_in_another_order_make_it_another() -> None:
    class Other(NamedTuple):
        second: int
        first: int

    Other.__name__ = Pair.__name__
    assert compiled(difference, Pair(5, 3)) == (2, 1)
    assert compiled(difference, Other(5, 3)) == (-2, 1)


def test_options_make_it_another() -> None:
    assert code_digest(product, {"fastmath": {"a", "b"}}) == code_digest(product, {"fastmath": {"b", "a"}})
    assert code_digest(product, {"fastmath": {"a"}}) != code_digest(product, {"fastmath": {"b"}})


def test_another_version_makes_it_another(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(product, 3)
    monkeypatch.setattr(numba, "__version__", "99.0")
    assert compiled(product, 3) == (6, 1)


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_what_others_may_have_put_there_is_not_run(directory: Path, mode: int) -> None:
    compiled(product, 3)
    directory.chmod(mode)
    assert compiled(product, 3) == (6, 1)
    problem = cache_state().problem
    assert problem is not None
    assert "others may write" in problem


def test_a_directory_that_cannot_be_made_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    assert compiled(product, 3) == (6, 1)
    problem = cache_state().problem
    assert problem is not None
    assert VARIABLE in problem


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert compiled(product, 3) == (6, 1)
    assert compiled(product, 3) == (6, 1)
    assert cache_state().directory is None


def test_a_disk_that_is_full_is_no_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert compiled(product, 3) == (6, 1)
    assert list(directory.iterdir()) == []


def test_the_oldest_files_go(tmp_path: Path) -> None:
    for age in range(5):
        path = tmp_path / f"{age}.kernel"
        path.touch()
        os.utime(path, (1000 - age, 1000 - age))
    prune(tmp_path, files_max=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.kernel", "1.kernel"]


def test_one_process_has_the_lock_and_others_wait(tmp_path: Path) -> None:
    class Patience(Exception):
        pass

    def lose_patience() -> None:
        raise Patience

    with locked(tmp_path), pytest.raises(Patience), locked(tmp_path, lose_patience):
        pass
    with locked(tmp_path, lose_patience):
        pass

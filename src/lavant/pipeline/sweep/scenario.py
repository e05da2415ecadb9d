"""The definition of a sweep: a TOML file, and its tasks.

A task's id and seed come from its own parameters, replication and the sweep's seed, not from its position in the grid.
So a value added to a list adds tasks and leaves the others, and their results, unchanged.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import msgspec

from lavant.core.errors import InvalidValue, LimitExceeded

Parameter = bool | int | float | str

TASKS_MAX = 100_000
INTEGER_MAX = 2**63 - 1
OWN_COLUMNS = ("id", "replication", "seed", "seconds", "error")
"""Columns of every result; no parameter or figure may have such a name."""


class SweepTask(NamedTuple):
    """One call of the function."""

    id: str
    parameters: dict[str, Parameter]
    replication: int
    seed: int


class Sweep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All combinations of the values of `grid`, each with those of `fixed`, `replications` times.

    >>> sweep = Sweep(function="queues:mmc", fixed={"rate": 2.0}, grid={"servers": [1, 2]}, replications=2)
    >>> [(task.parameters["servers"], task.replication) for task in sweep.tasks()]
    [(1, 0), (1, 1), (2, 0), (2, 1)]
    """

    function: str
    fixed: dict[str, Parameter] = {}
    grid: dict[str, list[Parameter]] = {}
    replications: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.replications < 1:
            raise InvalidValue(f"replications must be positive, got {self.replications}")
        for name, value in self.fixed.items():
            _check_values(name, [value])
        for name, values in self.grid.items():
            if name in self.fixed:
                raise InvalidValue(f"parameter {name!r} is in [fixed] and in [grid]; remove one")
            _check_values(name, values)
        if self.size > TASKS_MAX:
            counts = " × ".join(f"{len(values)} {name}" for name, values in self.grid.items())
            raise LimitExceeded(
                f"the sweep has {self.size} tasks ({counts} × {self.replications} replications), "
                f"at most {TASKS_MAX} are allowed; split it into several files with the same output"
            )

    @property
    def size(self) -> int:
        return math.prod(map(len, self.grid.values())) * self.replications

    @property
    def parameter_types(self) -> dict[str, type]:
        """The type of each parameter; a list with integers and floats is one of floats."""
        lists = {**{name: [value] for name, value in self.fixed.items()}, **self.grid}
        return {name: _type_of(values) for name, values in lists.items()}

    def tasks(self) -> Iterator[SweepTask]:
        """Every task, in the order of the file: the last list of the grid runs fastest."""
        types = self.parameter_types
        for values in product(*self.grid.values()):
            given = {**self.fixed, **dict(zip(self.grid, values, strict=True))}
            parameters: dict[str, Parameter] = {name: types[name](value) for name, value in given.items()}
            for replication in range(self.replications):
                yield self._task(parameters, replication)

    def _task(self, parameters: dict[str, Parameter], replication: int) -> SweepTask:
        text = json.dumps([self.function, self.seed, replication, parameters], sort_keys=True)
        digest = hashlib.sha256(text.encode()).digest()
        seed = int.from_bytes(digest[16:24], "big") >> 1  # 63 bits: fits a column of signed integers
        return SweepTask(digest[:16].hex(), parameters, replication, seed)


def load_sweep(path: Path) -> Sweep:
    """The sweep of a TOML file, or an error that names the file and the location."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidValue(f"{path}: not TOML: {error}") from None
    try:
        return msgspec.convert(content, Sweep)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidValue):  # found by the sweep itself, in its own words
            raise type(error.__cause__)(f"{path}: {error.__cause__}") from None
        known = ", ".join(Sweep.__struct_fields__)
        raise InvalidValue(f"{path}: {error}; a sweep has {known}, parameters in [fixed] and [grid]") from None


def _check_values(name: str, values: list[Parameter]) -> None:
    if name in OWN_COLUMNS:
        raise InvalidValue(f"a parameter cannot be called {name!r}: results have a column of that name; rename it")
    if not values:
        raise InvalidValue(f"grid list {name!r} is empty; give it a value or leave it out")
    if len({(type(value), value) for value in values}) < len(values):
        raise InvalidValue(f"grid list {name!r} has a value twice: {values}; for repetitions, set replications")
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidValue(f"parameter {name!r} is {value}; use a finite number")
        if isinstance(value, int) and abs(value) > INTEGER_MAX:
            raise InvalidValue(f"parameter {name!r} is {value}, beyond 64 bits; use a float or a string")
    _type_of(values, name)


def _type_of(values: list[Parameter], name: str = "") -> type:
    types = {type(value) for value in values}
    if types == {int, float}:
        return float
    if len(types) > 1:
        raise InvalidValue(f"grid list {name!r} mixes types: {values}; use one type for a parameter")
    return types.pop()

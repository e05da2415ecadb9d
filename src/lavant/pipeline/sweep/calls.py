"""Runs one task: resolves the function by name, calls it, and validates its result.

The function travels by reference, so its module must be importable where tasks run: installed there, or in a directory
that driver and workers both see (`path`).
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lavant.core.errors import InvalidValue
from lavant.pipeline.sweep.scenario import OWN_COLUMNS, Parameter, SweepTask

Figure = float | str | bool | None
Function = Callable[[dict[str, Parameter], int], dict[str, Any]]

FIGURES_MAX = 256
TEXT_LENGTH_MAX = 64 * 1024
ERROR_LENGTH_MAX = 2000
INTEGER_MAX = 2**53


class SweepTaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task: figures, or the text of an error."""

    task: SweepTask
    seconds: float
    figures: dict[str, Figure] = {}
    error: str | None = None


def resolve(reference: str, path: str | None = None) -> Function:
    """The function that `package.module:function` names."""
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise InvalidValue(f"function must be of the form 'package.module:function', got {reference!r}")
    if path is not None and not Path(path).is_dir():
        raise InvalidValue(f"there is no directory {path} for the module of function {reference!r}")
    if path is not None and path not in sys.path:
        sys.path.insert(0, path)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InvalidValue(
            f"cannot import {module_name!r} for function {reference!r}: {error}; install it, or name its directory "
            "with --path, on every machine that computes"
        ) from None
    except Exception as error:
        raise InvalidValue(f"importing {module_name!r} for function {reference!r} failed: {_say(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        problem = "has no" if function is None else "has a value that is no function as"
        raise InvalidValue(f"module {module_name!r} {problem} {name!r}; functions there: {_functions(module)}")
    return function  # type: ignore[no-any-return]


def perform(task: SweepTask, reference: str, path: str | None) -> SweepTaskResult:
    """Call the function for a task. Any failure becomes the error of its result."""
    start = time.perf_counter()
    try:
        function = resolve(reference, path)
        figures = checked_figures(function(dict(task.parameters), task.seed), task.parameters)
    except (Exception, SystemExit) as error:  # also a function that ends the process: the others continue
        return SweepTaskResult(task=task, seconds=time.perf_counter() - start, error=_say(error))
    return SweepTaskResult(task=task, seconds=time.perf_counter() - start, figures=figures)


def checked_figures(returned: object, parameters: dict[str, Parameter]) -> dict[str, Figure]:
    """The function's result with all numbers as floats, or an error that names the figure."""
    if not isinstance(returned, dict):
        raise InvalidValue(f"the function must return a dict of figures, it returned {type(returned).__name__}")
    if not 1 <= len(returned) <= FIGURES_MAX:
        raise InvalidValue(f"the function must return 1 to {FIGURES_MAX} figures, it returned {len(returned)}")
    for name in returned:
        if not isinstance(name, str) or not name:
            raise InvalidValue(f"names of figures must be strings, the function returned {name!r}")
        if name in OWN_COLUMNS or name in parameters:
            taken = "a parameter" if name in parameters else "a column of every result"
            raise InvalidValue(f"the function returned {name!r}, which is {taken}; rename it")
    return {name: _figure(name, value) for name, value in returned.items()}


def _figure(name: str, value: object) -> Figure:
    if isinstance(value, np.generic):
        value = value.item()
    match value:
        case None | bool() | float():
            return value
        case str() if len(value) <= TEXT_LENGTH_MAX:
            return value
        case int() if abs(value) <= INTEGER_MAX:
            return float(value)
        case str() | int():
            raise InvalidValue(f"figure {name!r} is too large: {value!r:.60}")
        case _:
            raise InvalidValue(f"figure {name!r} is of type {type(value).__name__}; return numbers, strings, booleans")


def _say(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"[:ERROR_LENGTH_MAX]


def _functions(module: object) -> str:
    names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    return ", ".join(sorted(names)[:10]) if names else "none"

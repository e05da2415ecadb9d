"""Functions with typed parameters: their arguments are the members of the job's input, a JSON object.

    @task("resize")
    def resize(file: str, width: int = 100) -> bytes: ...      # for the input {"file": "a.png"}

A parameter that is annotated as `Task` gets the task. A function whose only parameter is a `Task`, or has no
annotation, is called with the task alone.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import msgspec

from lavant.client.workers.task import Task
from lavant.core.errors import UNDECODABLE, InvalidValue, PermanentFailure


@cache
def called_with_task(function: Callable[..., Any]) -> Callable[[Task], Any]:
    """A function of the task that calls this one with its arguments; the same function if it takes the task itself."""
    parameters = list(inspect.signature(function).parameters.values())
    hints = _hints(function)
    if len(parameters) == 1 and hints.get(parameters[0].name, Task) is Task:
        return function
    arguments_of = _reader(function, parameters, hints)

    @wraps(function)
    def call(task: Task) -> Any:
        return function(**arguments_of(task))

    @wraps(function)
    async def call_async(task: Task) -> Any:
        return await function(**arguments_of(task))

    return call_async if inspect.iscoroutinefunction(function) else call


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError) as error:
        raise InvalidValue(
            f"the annotations of {function.__name__} cannot be read: {error}; import their types when the module is "
            "imported, not only for type checkers"
        ) from None


def _reader(
    function: Callable[..., Any], parameters: list[inspect.Parameter], hints: dict[str, Any]
) -> Callable[[Task], dict[str, Any]]:
    fields: list[Any] = []
    task_names = [each.name for each in parameters if hints.get(each.name) is Task]
    for each in parameters:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY):
            raise InvalidValue(
                f"{function.__name__} has the parameter {str(each)!r}; a task's function has parameters with names, "
                "which are members of the job's input"
            )
        if each.name not in task_names:
            kind = hints.get(each.name, Any)
            fields.append((each.name, kind) if each.default is each.empty else (each.name, kind, each.default))
    try:
        kind = msgspec.defstruct("Arguments", fields, kw_only=True)
        decode = msgspec.json.Decoder(kind).decode
    except TypeError as error:
        raise InvalidValue(
            f"the arguments of {function.__name__} cannot be read from JSON: {error}; use types that msgspec knows"
        ) from None

    def read(task: Task) -> dict[str, Any]:
        try:
            arguments = decode(task.input if task.input else b"{}")
        except UNDECODABLE as error:
            raise PermanentFailure(
                f"the input of the job is not what {function.__name__}{inspect.signature(function)} takes: {error}"
            ) from None
        return {name: getattr(arguments, name) for name, *_ in fields} | dict.fromkeys(task_names, task)

    return read

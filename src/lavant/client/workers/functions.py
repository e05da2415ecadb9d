"""Functions for topics: `@task("A")` marks them, and a worker finds them in a module.

The decorator only marks a function: you can call and test it as before, and there is no global registry.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from lavant.client.workers.task import Task
from lavant.client.workers.typed import called_with_task
from lavant.core.errors import InvalidValue

Function: TypeAlias = Callable[[Task], Any]
"""Returns `Made`, or an awaitable of it."""
_F = TypeVar("_F", bound=Callable[..., Any])

_TOPICS = "lavant_topics"


class Handler(NamedTuple):
    """The function for the tasks of a topic."""

    topic: str
    function: Function

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)


def task(topic: str) -> Callable[[_F], _F]:
    """Makes workers call this function for the tasks of a topic. Apply it several times for several topics.

    The function takes the `Task`, or parameters with type hints: members of the job's input, a JSON object.

    >>> @task("resize")
    ... def resize(file: str, width: int = 100) -> str:
    ...     return f"{file} is {width} wide"
    """
    if not isinstance(topic, str) or not topic:
        raise InvalidValue(f'@task needs the name of a topic, as in @task("resize"), got {topic!r}')

    def mark(function: _F) -> _F:
        if not callable(function):
            raise InvalidValue(f'@task("{topic}") is for a function, got {function!r:.40}')
        setattr(function, _TOPICS, (*getattr(function, _TOPICS, ()), topic))
        return function

    return mark


def load(place: str, topics: Sequence[str] = ()) -> list[Handler]:
    """Loads the functions at MODULE, MODULE:ATTRIBUTE, FILE.py or FILE.py:ATTRIBUTE, for some topics or all.

    ATTRIBUTE may be a function without a mark, if you give the topic.
    """
    name, _, attribute = place.partition(":")
    module = _imported(name)
    if attribute:
        function = getattr(module, attribute, None)
        if not callable(function):
            raise InvalidValue(f"{name} has no function {attribute!r}; it has {_listed(_functions(module))}")
        marked = getattr(function, _TOPICS, ())
        found = [Handler(topic, called_with_task(function)) for topic in (marked if marked else topics)]
    else:
        found = [
            Handler(topic, called_with_task(each)) for each in _functions(module) for topic in getattr(each, _TOPICS)
        ]
    return _chosen(place, found, topics)


def _chosen(place: str, found: list[Handler], topics: Sequence[str]) -> list[Handler]:
    by_topic: dict[str, Handler] = {}
    for handler in found:
        other = by_topic.setdefault(handler.topic, handler)
        if other.function is not handler.function:
            raise InvalidValue(
                f"{place}: {_name(other.function)} and {_name(handler.function)} are both for topic {handler.topic!r}"
            )
    if not by_topic:
        raise InvalidValue(f'{place} has no function for a topic; write @lavant.task("TOPIC") above one')
    for topic in topics:
        if topic not in by_topic:
            raise InvalidValue(f"{place} has no function for topic {topic!r}; it has {', '.join(sorted(by_topic))}")
    return [handler for topic, handler in sorted(by_topic.items()) if not topics or topic in topics]


def _imported(name: str) -> ModuleType:
    """Imports from the directory of the file, or from the current directory, as `python -m` does."""
    path = Path(name)
    is_file = path.suffix == ".py"
    directory = str(path.parent.resolve() if is_file else Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    if is_file and not path.is_file():
        raise InvalidValue(f"there is no file {name}")
    try:
        return importlib.import_module(path.stem if is_file else name)
    except Exception as error:  # a module may raise anything
        said = f"{type(error).__name__}: {error}{_last_line(error)}"
        raise InvalidValue(f"worker module {name!r} cannot be imported: {said}") from None


def _last_line(error: Exception) -> str:
    """The position in the user's own code, if the import got that far."""
    trace, where = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and not file.startswith("<frozen") and "importlib" not in file:
            where = f" ({file}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return where


def _functions(module: ModuleType) -> list[Any]:
    """All marked functions of a module; an alias counts once."""
    found = {id(each): each for each in vars(module).values() if callable(each) and hasattr(each, _TOPICS)}
    return list(found.values())


def _listed(functions: list[Any]) -> str:
    return ", ".join(sorted(map(_name, functions))) if functions else "none that is marked with @lavant.task"


def _name(function: Any) -> str:
    return getattr(function, "__name__", repr(function))

"""Operations: each is written once, as a coroutine, and offered by the blocking and by the asynchronous client.

    class QueueOperations:
        @operation
        async def send(self, body: bytes) -> int: ...

    class Queue(QueueOperations, Blocking): ...             # queue.send(body) -> int
    class AsyncQueue(QueueOperations, Asynchronous): ...    # await queue.send(body) -> int

In an asynchronous class the coroutine function is the method. In a blocking class the method runs the coroutine to its
end in the calling thread: whatever it awaits blocks instead of suspending it, so no event loop is needed.

An operation that is a single call is declared by `@single_call`, and spares the blocking client the coroutine:

        @single_call
        def acknowledge(self, *messages: Leased) -> Call[None]: ...
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper, wraps
from types import FunctionType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, get_args, get_origin, overload

from lavant import tracing
from lavant.client.connection.calls import Call

P = ParamSpec("P")
T = TypeVar("T")
BlockingResult = TypeVar("BlockingResult")
AsyncResult = TypeVar("AsyncResult")
_CALL = re.compile(r"Call\[(.*)\]")


class Caller:
    """Carries out calls and sleeps. In a blocking client, neither suspends."""

    def _answer(self, call: Call[T]) -> Coroutine[Any, Any, T]:
        raise NotImplementedError

    def _sleep(self, pause_s: float) -> Coroutine[Any, Any, None]:
        raise NotImplementedError


class Blocking:
    """Offers the operations of its bases as methods that block."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, function, declared in _operations(cls, {"AsyncIterator": "Iterator"}):
            setattr(cls, name, _iterator(function) if declared.is_listing else _blocking(function, declared))


class Asynchronous:
    """Offers the operations of its bases as coroutine functions and asynchronous iterators."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, function, declared in _operations(cls, {}):
            is_call = not (inspect.iscoroutinefunction(function) or declared.is_listing)
            setattr(cls, name, _awaited_call(function, declared) if is_call else function)


class SharedOperation(Generic[P, BlockingResult, AsyncResult]):
    """A method that blocks or not, depending on the class; `Blocking` and `Asynchronous` define it."""

    def __init__(self, function: Callable[..., Any], *, is_listing: bool = False, is_sending: bool = False) -> None:
        self.function = cast(FunctionType, function)
        self.is_listing = is_listing
        self.is_sending = is_sending
        """Whether it has a span of its own."""

    @overload
    def __get__(self, instance: Blocking, owner: Any) -> Callable[P, BlockingResult]: ...
    @overload
    def __get__(self, instance: Asynchronous, owner: Any) -> Callable[P, AsyncResult]: ...
    @overload
    def __get__(self, instance: None, owner: type[Blocking]) -> Callable[Concatenate[Any, P], BlockingResult]: ...
    @overload
    def __get__(self, instance: None, owner: type[Asynchronous]) -> Callable[Concatenate[Any, P], AsyncResult]: ...
    def __get__(self, instance: object, owner: Any) -> Any:
        return self


def operation(
    function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> SharedOperation[P, T, Coroutine[Any, Any, T]]:
    """Declares a coroutine function as an operation."""
    return SharedOperation(function)


def single_call(
    function: Callable[Concatenate[Any, P], Call[T]],
) -> SharedOperation[P, T, Coroutine[Any, Any, T]]:
    """Declares a function that returns a call as an operation; `_connection` of the object carries out the call."""
    return SharedOperation(function)


def sending_call(
    function: Callable[Concatenate[Any, P], Call[T]],
) -> SharedOperation[P, T, Coroutine[Any, Any, T]]:
    """Declares a single call that sends to a queue, which is named by `name` of the object."""
    return SharedOperation(function, is_sending=True)


def listing(
    function: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> SharedOperation[P, Iterator[T], AsyncIterator[T]]:
    """Declares a function that returns an asynchronous generator: the blocking client offers an iterator."""
    return SharedOperation(function, is_listing=True)


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends, and returns its result.

    >>> async def length(text: str) -> int:
    ...     return len(text)
    >>> run_blocking(length("abc"))
    3
    """
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError(f"{work} suspended, but a blocking client has no event loop")


def _operations(
    owner: type, names: dict[str, str]
) -> Iterator[tuple[str, FunctionType, SharedOperation[Any, Any, Any]]]:
    """The operations that `owner` inherits, each with its own copy of the function.

    Annotations of the copy name the types of `owner`: those in `names`, and the arguments of generic bases.
    """
    for base in owner.__dict__.get("__orig_bases__", ()):
        variables = getattr(get_origin(base), "__parameters__", ())
        for variable, argument in zip(variables, get_args(base), strict=False):
            known = vars(sys.modules[owner.__module__]).items()
            names[variable.__name__] = next((name for name, value in known if value is argument), variable.__name__)
    for name in dir(owner):
        declared = inspect.getattr_static(owner, name)
        if isinstance(declared, SharedOperation):
            yield name, _copy(declared.function, f"{owner.__qualname__}.{name}", names), declared


def _copy(function: FunctionType, qualified_name: str, names: dict[str, str]) -> FunctionType:
    copy = FunctionType(function.__code__, function.__globals__, closure=function.__closure__)
    update_wrapper(copy, function)
    del copy.__wrapped__  # type: ignore[attr-defined]
    copy.__qualname__ = qualified_name
    copy.__defaults__, copy.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    copy.__annotations__ = {
        name: re.sub(r"\w+", lambda found: names.get(found[0], found[0]), _CALL.sub(r"\1", annotation))
        for name, annotation in function.__annotations__.items()
    }
    return copy


def _blocking(function: FunctionType, declared: SharedOperation[Any, Any, Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return run_blocking(function(*args, **kwargs))

    @wraps(function)
    def run_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._connection.run(function(self, *args, **kwargs))

    @wraps(function)
    def run_sending(self: Any, *args: Any, **kwargs: Any) -> Any:
        with tracing.producing("send", self.name):
            return self._connection.run(function(self, *args, **kwargs))

    if inspect.iscoroutinefunction(function):
        return run
    return run_sending if declared.is_sending else run_call


def _awaited_call(function: FunctionType, declared: SharedOperation[Any, Any, Any]) -> Callable[..., Any]:
    @wraps(function)
    async def run_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._connection.run(function(self, *args, **kwargs))

    @wraps(function)
    async def run_sending(self: Any, *args: Any, **kwargs: Any) -> Any:
        with tracing.producing("send", self.name):
            return await self._connection.run(function(self, *args, **kwargs))

    return run_sending if declared.is_sending else run_call


def _iterator(function: Callable[..., AsyncGenerator[T, None]]) -> Callable[..., Iterator[T]]:
    @wraps(function)
    def method(*args: Any, **kwargs: Any) -> Iterator[T]:
        items = function(*args, **kwargs)
        try:
            while True:
                try:
                    item = run_blocking(items.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            run_blocking(items.aclose())

    return method

"""Operations: one coroutine, offered as a blocking method and as itself."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator

import pytest

from lavant.broker.protocol.queues import Done, PurgeQueue
from lavant.client.connection.calls import Call
from lavant.client.operations import Asynchronous, Blocking, listing, operation, run_blocking, single_call


class Counting:
    def __init__(self) -> None:
        self.closed = 0

    @operation
    async def add(self, a: int, /, b: int = 2, *, c: int = 3) -> int:
        """Adds."""
        if a < 0:
            raise StopIteration("negative")
        return a + b + c

    @listing
    async def numbers(self, count: int) -> AsyncIterator[int]:
        """Counts."""
        try:
            for number in range(count):
                yield number
        finally:
            self.closed += 1

    @operation
    async def sleep(self) -> None:
        """Suspends, which no operation of a blocking client may."""
        await asyncio.sleep(0)


class BlockingCounting(Counting, Blocking):
    pass


class AsyncCounting(Counting, Asynchronous):
    pass


class Louder(BlockingCounting):
    def add(self, a: int, /, b: int = 2, *, c: int = 3) -> int:
        return 10 * super().add(a, b, c=c)


def test_arguments_results_and_errors_pass_through() -> None:
    assert BlockingCounting().add(1) == 6
    assert BlockingCounting().add(1, b=0, c=0) == 1
    with pytest.raises(TypeError, match="unexpected keyword"):
        BlockingCounting().add(1, d=0)  # type: ignore[call-arg]
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        BlockingCounting().add(-1)


def test_tasks_await_the_same() -> None:
    async def work() -> None:
        counting = AsyncCounting()
        assert await counting.add(1, 1, c=1) == 3
        assert [number async for number in counting.numbers(3)] == [0, 1, 2]

    asyncio.run(work())


def test_an_iterator_is_lazy_and_is_closed_with_its_caller() -> None:
    counting = BlockingCounting()
    numbers = counting.numbers(3)
    assert next(numbers) == 0
    assert counting.closed == 0
    numbers.close()  # type: ignore[attr-defined]
    assert counting.closed == 1
    assert list(counting.numbers(2)) == [0, 1]
    assert counting.closed == 2


def test_a_blocking_client_works_inside_of_a_running_event_loop() -> None:
    async def work() -> list[int]:
        return [BlockingCounting().add(1), *BlockingCounting().numbers(2)]

    assert asyncio.run(work()) == [6, 0, 1]


def test_subclasses_may_override_a_method() -> None:
    assert Louder().add(1) == 60


def test_a_coroutine_that_suspends_is_a_defect() -> None:
    with pytest.raises(AssertionError, match="suspended"):
        BlockingCounting().sleep()
    with pytest.raises(AssertionError, match="suspended"):
        run_blocking(asyncio.sleep(0))


def test_each_class_has_functions_of_its_own() -> None:
    for kind, is_async in ((BlockingCounting, False), (AsyncCounting, True)):
        assert inspect.isfunction(kind.add)
        assert inspect.iscoroutinefunction(kind.add) is is_async
        assert inspect.isasyncgenfunction(kind.numbers) is is_async
        assert kind.add.__qualname__ == f"{kind.__name__}.add"
        assert str(inspect.signature(kind.add)) == "(self, a: 'int', /, b: 'int' = 2, *, c: 'int' = 3) -> 'int'"


class Purging:
    """Its connection answers `Done` to everything."""

    @property
    def _connection(self) -> Purging:
        return self

    @single_call
    def purge(self, queue: str) -> Call[str]:
        """Purges."""
        return Call(PurgeQueue(queue), lambda answer: queue)


class BlockingPurging(Purging, Blocking):
    def run(self, call: Call[str]) -> str:
        return call.read(Done())


class AsyncPurging(Purging, Asynchronous):
    async def run(self, call: Call[str]) -> str:
        return call.read(Done())


def test_a_single_call_is_carried_out_by_the_connection() -> None:
    assert BlockingPurging().purge("orders") == "orders"
    assert asyncio.run(AsyncPurging().purge("orders")) == "orders"
    assert inspect.iscoroutinefunction(AsyncPurging.purge)
    for owner in (BlockingPurging, AsyncPurging):
        assert str(inspect.signature(owner.purge)) == "(self, queue: 'str') -> 'str'"
        assert owner.purge.__doc__ == "Purges."

"""Limits of a namespace's subscriptions: checked for each as it comes, with all before it, on any number of cores."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from tests.unit.service.runtime.hall import Hall
from tests.unit.service.wiring import in_loop

from lavant.broker.protocol.commands import Answer
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import EncryptedFilter, Publish, Subscribe, Subscribed, Unsubscribe
from lavant.broker.subscriptions.limits import SubscriptionLimits
from lavant.service.engines.local import LocalEngine


def five(number: int) -> str:
    """A filter of five attributes that no other has."""
    return " and ".join(f"a{number}_{place} > 1" for place in range(5))


def encrypted(tests: int, dimensions: int) -> EncryptedFilter:
    return EncryptedFilter(dimensions, np.ones((tests, dimensions)).tobytes())


def refused(answers: list[Answer]) -> list[str]:
    return [answer.reason for answer in answers if isinstance(answer, Refused)]


def small_hall(slices: int = 2) -> Hall:
    """One whose namespaces have room for ten such filters."""
    hall = Hall(LocalEngine(slices=slices))
    hall.broker.subscriptions.limits = SubscriptionLimits(namespace_attributes_max=52)
    return hall


@pytest.mark.parametrize("slices", [1, 2, 3, 8])
def test_attributes_of_a_whole_batch_are_counted_when_it_comes(slices: int) -> None:
    @in_loop
    async def check() -> None:
        hall = small_hall(slices)
        answers = await asyncio.gather(*[hall.ask(Subscribe(five(number), f"s{number}")) for number in range(30)])
        assert [isinstance(answer, Subscribed) for answer in answers] == [True] * 10 + [False] * 20
        assert set(refused(answers)) == {
            "the filters of this namespace compare 50 attributes and types, with this one 55, at most 52 are "
            "allowed; use attribute names that others use, or another namespace"
        }
        assert len(hall.broker.subscriptions) == 10
        await hall.ask(Publish([b'{"a0_0": 2, "a0_1": 2, "a0_2": 2, "a0_3": 2, "a0_4": 2}']))
        assert len(await hall.bodies("s0")) == 1
        await hall.close()

    check()


@in_loop
async def test_what_goes_in_the_same_batch_makes_room() -> None:
    hall = small_hall()
    await asyncio.gather(*[hall.ask(Subscribe(five(number), f"s{number}")) for number in range(10)])
    asked = []
    for number in range(7):
        asked += [hall.ask(Unsubscribe(f"s{number}")), hall.ask(Subscribe(five(100 + number), f"t{number}"))]
    answers = await asyncio.gather(*asked)
    assert not refused(answers)
    assert refused([await hall.ask(Subscribe(five(200), "more"))])
    await hall.close()


@in_loop
async def test_what_was_refused_otherwise_takes_no_room() -> None:
    hall = small_hall()
    await asyncio.gather(*[hall.ask(Subscribe(five(number), f"s{number}")) for number in range(9)])
    same_name = [hall.ask(Subscribe(five(900 + number), "s0")) for number in range(5)]
    answers = await asyncio.gather(*same_name, hall.ask(Subscribe(five(999), "last")))
    assert len(refused(list(answers))) == 5
    assert isinstance(answers[-1], Subscribed)
    assert isinstance(await hall.ask(Subscribe(five(3), "s3")), Subscribed)
    await hall.close()


@in_loop
async def test_encrypted_filters_of_a_namespace_have_one_shape_while_there_are_any() -> None:
    hall = Hall()
    asked = [hall.ask(Subscribe(encrypted(4, 3), "a")), hall.ask(Subscribe(encrypted(6, 4), "b"))]
    answers = await asyncio.gather(*asked)
    assert refused(list(answers)) == [
        "an encrypted filter has 6 tests of 4 dimensions, but those of this namespace have 4 tests of 3; use one "
        "schema and key for all, or another namespace"
    ]
    asked = [hall.ask(Unsubscribe("a")), hall.ask(Subscribe(encrypted(6, 4), "b"))]
    assert not refused(list(await asyncio.gather(*asked)))
    assert isinstance(await hall.ask(Subscribe(encrypted(4, 3), "other", namespace="n")), Subscribed)
    await hall.close()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e200, 0.0])
def test_an_encrypted_filter_that_no_key_makes_is_refused_and_leaves_nothing(value: float) -> None:
    @in_loop
    async def check() -> None:
        hall = Hall()
        filter = EncryptedFilter(3, np.full((4, 3), value).tobytes())
        [reason] = refused([await hall.ask(Subscribe(filter, "bad"))])
        assert "its length must be finite and between 1e-100 and 1e+100; encrypt it with the client's key" in reason
        assert len(hall.broker.subscriptions) == 0
        await hall.close()

    check()

"""Queries of every kind with whatever text and numbers: each is answered or refused, and nothing else ever happens.

What a field of a query may hold is read from its type, so a new query is asked too.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_broker_commands import World, bytes_of
from tests.unit.broker.machine.servers import Bench

from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol import queues as q
from lavant.broker.protocol import subscriptions as s
from lavant.broker.protocol.namespaces import in_namespace
from lavant.broker.protocol.registry import QUERIES
from lavant.broker.queues.validation import refusal
from lavant.core.errors import LavantError

KNOWN = ["a", "b", "acme/a", "topic.A", "dead.A", "acme", "chain", "sub-1", "running", "completed", "A"]
TEXTS = st.one_of(
    st.sampled_from(["", "\0", "a\0", "\U0010ffff", "a\U0010ffff", "/", "x" * 81, "x" * 100_000, *KNOWN]), st.text()
)
NUMBERS = st.one_of(st.integers(-2, 12), st.sampled_from([1000, 1001, 2**31, 2**63 - 1, 2**64, -(2**63)]))
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {str: TEXTS, int: NUMBERS, bool: st.booleans(), NoneType: st.none()}


def values(hint: Any) -> st.SearchStrategy[Any]:
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return st.one_of([BY_TYPE[kind] for kind in kinds])


def queries(kind: type) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{name: values(hint) for name, hint in get_type_hints(kind).items()})


def filled() -> BrokerState:
    """A broker with some of everything."""
    world = World(3, compares=False)
    for _ in range(300):
        world.step()
    return world.broker


BROKER = filled()


@pytest.mark.parametrize("kind", sorted(QUERIES, key=str))
@given(data=st.data())
def test_a_query_is_answered_or_refused(kind: type, data: st.DataObject) -> None:
    query = data.draw(queries(kind))
    before = bytes_of(BROKER)
    try:
        answer: Any = BROKER.handle(query, 0)
    except LavantError as error:
        answer = refusal(error)
    assert not isinstance(answer, q.Refused) or len(answer.reason) < 1000, "an error is to be read"
    msgspec.msgpack.encode(answer)
    assert bytes_of(BROKER) == before
    assert not BROKER.changed


@given(prefix=st.text("ab-.\0", max_size=3), after=st.text("ab-.\0", max_size=3), count=st.integers(1, 4))
def test_a_listing_is_what_a_plain_search_finds(prefix: str, after: str, count: int) -> None:
    names = ["a", "a-b", "a.", "ab", "aba", "b", "b-", "ba"]
    broker = BrokerState()
    for namespace in ("", "b"):
        for name in names:
            broker.handle(s.Subscribe("x > 1", name, namespace=namespace), 0)
    expected = [name for name in names if name.startswith(prefix) and name > after][:count]
    for namespace in ("", "b"):
        try:
            listed = broker.handle(s.ListSubscriptions(namespace, prefix, after, count), 0)
            queues = broker.handle(
                q.ListQueues(in_namespace(namespace, prefix), in_namespace(namespace, after), count, not namespace), 0
            )
        except LavantError:
            assert "\0" in prefix + after
            continue
        assert isinstance(listed, s.SubscriptionsListed)
        assert [each.name for each in listed.subscriptions] == expected
        assert isinstance(queues, q.Listed)
        assert queues.queues == [in_namespace(namespace, name) for name in expected]


@pytest.mark.parametrize("text", ["\0", "a b", "ü", "x" * 81])
def test_a_part_of_a_name_that_no_name_can_have_is_refused_with_a_reason(text: str) -> None:
    bench = Bench()
    bench.commit()
    asked: list[Any] = [
        s.ListSubscriptions(prefix=text),
        s.ListSubscriptions(after=text),
        s.ListSubscriptions(namespace=text),
        s.ListAdvertisements(after=text),
        s.ListAdvertisements(namespace=text),
        q.ListQueues(prefix=text),
        q.ListQueues(after=text),
    ]
    for query in asked:
        answer = bench.answer(bench.ask(query))
        assert isinstance(answer, q.Refused)
        assert answer.code in ("InvalidValue", "LimitExceeded"), answer
    assert not bench.mistakes


def test_the_commands_leave_something_to_be_asked_about() -> None:
    """Else the queries above would find nothing."""
    listed = BROKER.handle(q.ListQueues(), 0)
    assert isinstance(listed, q.Listed)
    assert listed.queues
    assert len(BROKER.subscriptions)

"""Access, match and exit slices together: what is found is what one matcher alone would find, whatever links do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.slices.flow import Flow

from lavant.broker.filters import Filter
from lavant.broker.slices import (
    Allow,
    SliceDelivery,
    SliceLayout,
    SlicePublish,
    SliceSubscribe,
    SliceUnsubscribe,
    make_slice,
)
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.core.ids import SliceId
from lavant.core.publications.batch import PublicationBatch

KEY = Key.generate(Schema.of(NumericAttribute("x", 0, 10, 1)), entropy=np.random.default_rng(3).bytes)
ACCESS = SliceId("AP:0")


def subscribe(scheme: str, wanted: dict[int, int]) -> SliceSubscribe:
    texts = [f"x = {number}" for number in wanted.values()]
    filters = texts if scheme == "plain" else KEY.encrypt_filters([Filter.parse(text) for text in texts])
    return SliceSubscribe(scheme, np.array(list(wanted), np.uint32), filters)


def publish(scheme: str, numbers: list[int]) -> SlicePublish:
    rows = [{"x": number} for number in numbers]
    batch: Any = PublicationBatch.from_dicts(rows) if scheme == "plain" else KEY.encrypt_publications(rows)
    return SlicePublish(scheme, batch)


def unsubscribe(scheme: str, ids: list[int]) -> SliceUnsubscribe:
    return SliceUnsubscribe(scheme, np.array(ids, np.uint32))


NUMBERS = st.integers(0, 3)
SCHEMES = st.sampled_from(["plain", "encrypted"])
CHANGES = st.one_of(
    st.tuples(st.just("subscribe"), SCHEMES, st.dictionaries(st.integers(0, 15), NUMBERS, min_size=1, max_size=4)),
    st.tuples(st.just("unsubscribe"), SCHEMES, st.lists(st.integers(0, 15), min_size=1, max_size=3)),
    st.tuples(st.just("publish"), SCHEMES, st.lists(NUMBERS, min_size=1, max_size=3)),
)


@settings(max_examples=60, deadline=None)
@given(
    changes=st.lists(CHANGES, max_size=25),
    layout=st.builds(SliceLayout, match=st.integers(1, 3), exit=st.integers(1, 2)),
    seed=st.integers(0, 2**32),
    repeats=st.sampled_from([0.0, 0.3]),
    moves=st.booleans(),
)
def test_each_batch_is_notified_once_with_whom_it_matches_at_its_place(
    changes: list[Any], layout: SliceLayout, seed: int, repeats: float, moves: bool
) -> None:
    flow = Flow(layout, seed)
    wanted: dict[str, dict[int, int]] = {"plain": {}, "encrypted": {}}
    expected: dict[tuple[int, int], list[list[int]]] = {}

    def move() -> None:
        """Another machine goes on from the state of one."""
        id = layout.slices[len(flow.history) % len(layout.slices)]
        copy = make_slice(id, layout)
        copy.restore(flow.slices[id].snapshot())
        waiting = [packet for packet in flow.history if packet[1] == id]
        flow.running_job += [packet for packet in waiting if packet[2] > copy.vector.get(packet[0], 0)]
        flow.slices[id] = copy

    for kind, scheme, argument in changes:
        mine = wanted[scheme]
        if kind == "subscribe":
            mine.update(argument)
            flow.send(subscribe(scheme, argument))
        elif kind == "unsubscribe":
            for id in argument:
                mine.pop(id, None)
            flow.send(unsubscribe(scheme, argument))
        else:
            flow.send(publish(scheme, argument))
            found = [sorted(id for id, number in mine.items() if number == published) for published in argument]
            expected[0, len(expected) + 1] = found
    flow.run(repeats=repeats, at_each=move if moves else None)
    assert flow.found() == expected
    assert flow.refused == []


def test_a_slice_that_may_process_nothing_keeps_what_comes() -> None:
    flow = Flow(SliceLayout())
    match = flow.slices[SliceId("M:0")]
    assert match.handle(Allow(0), 0) == []
    flow.send(subscribe("plain", {1: 2}))
    flow.send(publish("plain", [2]))
    flow.send(publish("plain", [2, 3]))
    flow.run()
    assert (match.waiting, flow.found()) == (3, {})
    flow.perform(match.id, match.handle(Allow(2), 0))
    flow.run()
    assert (match.waiting, flow.found()) == (1, {(0, 1): [[1]]})
    flow.perform(match.id, match.handle(Allow(), 0))
    flow.run()
    assert flow.found() == {(0, 1): [[1]], (0, 2): [[1], []]}


def test_restoring_drops_what_waits_and_is_in_the_state() -> None:
    flow = Flow(SliceLayout())
    old, new = flow.slices[SliceId("M:0")], make_slice(SliceId("M:0"), SliceLayout())
    new.handle(Allow(0), 0)
    for number in range(3):
        flow.send(publish("plain", [number]))
    flow.run()
    inputs = [packet for packet in flow.history if packet[1] == old.id]
    for upstream, _, sequence, content in [*inputs, (ACCESS, old.id, 4, inputs[-1][3])]:
        new.handle(SliceDelivery(upstream, sequence, content), 0)
    assert new.waiting == 4
    new.restore(old.snapshot())
    assert (new.waiting, dict(new.vector)) == (1, {ACCESS: 3})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (SliceSubscribe("plain", np.array([1], np.uint32), ["x >"]), "expected"),
        (SliceSubscribe("plain", np.array([1, 1], np.uint32), ["x = 1", "x = 2"]), "twice"),
        (SliceSubscribe("plain", np.array([1, 2], np.uint32), ["x = 1"]), "2 ids for 1 filters"),
        (SliceSubscribe("rot13", np.array([1], np.uint32), ["x = 1"]), "rot13"),
        (SlicePublish("encrypted", PublicationBatch.from_dicts([{"x": 1}])), "takes a EncryptedBatch"),
        (SliceUnsubscribe("rot13", np.array([1], np.uint32)), "rot13"),
    ],
)
def test_what_an_access_slice_cannot_take_is_refused_and_the_next_is_taken(content: Any, reason: str) -> None:
    flow = Flow(SliceLayout(match=2))
    flow.send(content)
    flow.send(publish("plain", [1]))
    flow.run()
    (refused,) = flow.refused
    assert (refused.upstream, refused.sequence) == ("source", 1)
    assert reason in refused.reason
    assert flow.found() == {(0, 1): [[]]}


def test_filters_under_another_encryption_are_refused_by_the_match_slice_that_has_others() -> None:
    other = Key.generate(
        Schema.of(NumericAttribute("x", 0, 10, 1), NumericAttribute("y", 0, 10, 1)),
        entropy=np.random.default_rng(4).bytes,
    )
    flow = Flow(SliceLayout())
    flow.send(subscribe("encrypted", {1: 2}))
    flow.send(SliceSubscribe("encrypted", np.array([1], np.uint32), other.encrypt_filters([Filter.parse("x = 3")])))
    flow.send(SlicePublish("encrypted", other.encrypt_publications([{"x": 3, "y": 1}])))
    flow.send(publish("encrypted", [2]))
    flow.run()
    assert ["cannot join" in refused.reason for refused in flow.refused] == [True]
    assert flow.found() == {(0, 1): [[]], (0, 2): [[1]]}

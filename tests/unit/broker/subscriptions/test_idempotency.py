"""Idempotency keys: whose they are, how many, how long, and what tells a repetition from another request."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.machine.effects import TIME_BYTES
from lavant.broker.machine.replay import fold, replay
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.queues import FanOut
from lavant.broker.protocol.subscriptions import Deliver, PublishOutcome
from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.subscriptions import idempotency as module
from lavant.broker.subscriptions.idempotency import (
    KEYS_MAX,
    REMEMBERED_MS,
    IdempotencyKeys,
    RememberedRequest,
    fingerprint_of,
)

NOTHING = FanOut([], b"", b"", b"")
names = st.sampled_from(["", "a", "b", "c"])


def answered(namespace: str, key: str, fingerprint: bytes = b"f") -> PublishOutcome:
    return PublishOutcome(namespace, key, fingerprint, [f"{namespace}:{key}"])


def record(command: object, time_ms: int) -> bytes:
    return time_ms.to_bytes(TIME_BYTES, "big") + msgspec.msgpack.encode(command)


def test_a_key_is_remembered_for_some_minutes() -> None:
    recent = IdempotencyKeys(QueueCounters())
    recent.remember([answered("a", "old")], 0)
    assert recent.find("a", "old", REMEMBERED_MS - 1) == RememberedRequest(0, b"f", ["a:old"])
    assert recent.find("a", "old", REMEMBERED_MS) is None
    recent.remember([answered("b", "new")], REMEMBERED_MS + 1000)
    assert len(recent) == 1
    assert recent.evicted == 0


def test_a_namespace_with_too_many_keys_forgets_its_own_oldest_and_nobody_elses() -> None:
    recent = IdempotencyKeys(QueueCounters())
    recent.remember([answered("quiet", "k")], 0)
    recent.remember([answered("noisy", str(number)) for number in range(KEYS_MAX + 1000)], 1)
    assert recent.find("quiet", "k", 2) is not None
    assert recent.find("noisy", "999", 2) is None
    assert recent.find("noisy", "1000", 2) is not None
    assert recent.counts() == {"quiet": 1, "noisy": KEYS_MAX}
    assert recent.evicted == 1000


def test_too_many_keys_in_all_cost_those_who_have_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEYS_TOTAL_MAX", 100)
    monkeypatch.setattr(module, "_KEPT_OF_TOTAL", 90)
    recent = IdempotencyKeys(QueueCounters())
    for namespace, count in (("small", 5), ("large", 60), ("larger", 35), ("last", 1)):
        recent.remember([answered(namespace, str(number)) for number in range(count)], 0)
    assert recent.counts() == {"small": 5, "large": 49, "larger": 35, "last": 1}
    assert recent.find("large", "59", 1) is not None
    assert len(recent) == 90


@given(st.lists(st.tuples(names, names, st.integers(0, 2 * REMEMBERED_MS)), max_size=30), st.data())
def test_each_namespace_finds_its_own_keys_and_a_snapshot_has_them_all(
    asked: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    """Against a model that keeps everything."""
    broker, model = BrokerState(), {}
    now_ms = 0
    for namespace, key, later_ms in asked:
        now_ms += later_ms
        fingerprint = data.draw(st.binary(min_size=1, max_size=2))
        broker.handle(Deliver(NOTHING, answered=[PublishOutcome(namespace, key, fingerprint, ["x"])]), now_ms)
        model[namespace, key] = (broker.queues.now_ms, fingerprint)
    now_ms = broker.queues.now_ms + data.draw(st.integers(0, REMEMBERED_MS))
    for each in (broker, BrokerState.restore(list(broker.snapshot()))):
        for namespace in ("", "a", "b", "c"):
            for key in ("", "a", "b", "c"):
                time_ms, fingerprint = model.get((namespace, key), (-REMEMBERED_MS, b""))
                found = each.subscriptions.recent.find(namespace, key, now_ms)
                expected = RememberedRequest(time_ms, fingerprint, ["x"]) if now_ms < time_ms + REMEMBERED_MS else None
                assert found == expected


class Format2:
    """What versions without fingerprints have written."""

    KEYS = (("plain", ["1"]), ("acme/9f86", ["2"]))

    @classmethod
    def journal(cls) -> list[bytes]:
        spread = ["spread", [], b"", b"", b""]
        return [record(["deliver", spread, {key: entries}, {}, {}], 5) for key, entries in cls.KEYS]

    @classmethod
    def snapshot(cls) -> list[bytes]:
        queues = [chunk for chunk in BrokerState().snapshot() if chunk.startswith(b"q")]
        parts = (
            ["head", 2, 0],
            ["keys", [[key, 5, entries] for key, entries in cls.KEYS]],
            ["end", 0],
        )
        return [*queues, *(b"s" + msgspec.msgpack.encode(part) for part in parts)]


@pytest.mark.parametrize("route", ["journal", "snapshot", "compacted"])
def test_keys_of_older_versions_are_known_in_whatever_namespace_and_match_everything(route: str) -> None:
    if route == "journal":
        broker = replay(None, Format2.journal())
    elif route == "snapshot":
        broker = replay(Format2.snapshot(), [])
    else:
        broker = BrokerState.restore(list(fold(None, iter(Format2.journal()))))
    for namespace, key, entries in (("", "plain", ["1"]), ("a", "plain", ["1"]), ("acme", "acme/9f86", ["2"])):
        found = broker.subscriptions.recent.find(namespace, key, 6)
        assert found is not None
        assert found.entries == entries
        assert found.matches(b"whatever")
    assert broker.subscriptions.recent.find("", "plain", 5 + REMEMBERED_MS) is None
    broker.handle(Deliver(NOTHING, answered=[answered("x", "y")]), 5 + REMEMBERED_MS + 1000)
    assert len(broker.subscriptions.recent) == 1


bodies = st.lists(st.binary(max_size=6), min_size=1, max_size=4)


@given(bodies, bodies)
def test_fingerprints_are_equal_for_the_same_publications_only(one: list[bytes], other: list[bytes]) -> None:
    assert (fingerprint_of(one) == fingerprint_of(other)) == (one == other)


def test_of_encrypted_publications_the_ids_are_compared() -> None:
    def of(point: float, id: str) -> bytes:
        row = {"@point": [point, 1.0], "@payload": str(point)} | ({"@id": id} if id else {})
        return fingerprint_of([b'{"a":1}', msgspec.json.encode(row)])

    assert of(1.0, "i") == of(2.0, "i")
    assert of(1.0, "") == of(2.0, "")
    assert len({of(1.0, "i"), of(1.0, "j"), of(1.0, "")}) == 3
    assert fingerprint_of([b'{"a":"@point"}']) != fingerprint_of([b'{"b":"@point"}'])
    assert fingerprint_of([b'["@point"]']) != fingerprint_of([b'["@point" ]'])
    assert fingerprint_of([b'"@point" x']) != fingerprint_of([b'"@point" y'])

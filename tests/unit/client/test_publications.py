"""Publications on their way to a server: requests, keys, and patience."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant import Key, NumericAttribute, Publication, Schema
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Publish, Published
from lavant.broker.subscriptions.idempotency import fingerprint_of
from lavant.client.async_client import AsyncClient
from lavant.client.client import Client
from lavant.client.connection.calls import Call
from lavant.client.connection.retries import NO_RETRIES, Retries
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.encryption.cipher import Cipher
from lavant.client.publications import AT_ONCE, AT_ONCE_BYTES, Requests, key_of_contents, only_id
from lavant.client.publisher.records import encode_publication, encode_received, replay
from lavant.core.errors import InvalidValue, Overloaded, PartlyRefused, QueueFull
from lavant.core.ids import PublicationId


def requests_of(requests: Requests) -> list[Publish]:
    found = [call.request for _, call in requests]
    assert all(call.is_repeatable for _, call in requests)
    assert all(isinstance(request, Publish) for request in found)
    return found  # type: ignore[return-value]


def test_requests_are_of_a_bounded_size_and_keep_the_order() -> None:
    payload = bytes(1 << 20)  # more in base64: two fit
    rows = [Publication(attributes={"n": n}, payload=payload if n < 5 else None) for n in range(2 * AT_ONCE)]
    sent = requests_of(Requests(rows, None))
    numbers = [msgspec.json.decode(row)["n"] for request in sent for row in request.publications]
    assert numbers == list(range(2 * AT_ONCE))
    assert [len(request.publications) for request in sent] == [2, 2, AT_ONCE, AT_ONCE - 4]
    assert all(sum(map(len, request.publications)) <= AT_ONCE_BYTES for request in sent)


def test_every_request_has_a_key_of_its_own_which_a_repetition_keeps() -> None:
    requests = Requests([{"n": n} for n in range(AT_ONCE + 1)], None)
    [(_, first), (_, second)] = list(requests)
    assert isinstance(first.request, Publish)
    assert isinstance(second.request, Publish)
    assert len({first.request.key, second.request.key, ""}) == 3


def test_the_same_batch_has_the_same_key_in_another_process_and_another_batch_has_not() -> None:
    def keys(*ids: str) -> list[str]:
        batch = [Publication(attributes={}, id=PublicationId(id)) for id in ids]
        return [request.key for request in requests_of(Requests(batch, None, key_of_contents))]

    assert keys("a", "b") == keys("a", "b")
    assert len({*keys("a", "b"), *keys("b", "a"), *keys("a"), *keys("ab")}) == 4


attributes = st.dictionaries(
    st.text("abcé", min_size=1, max_size=3), st.one_of(st.text(max_size=4), st.floats(-1e9, 1e9), st.integers(-9, 9))
)
stored = st.lists(
    st.builds(
        Publication,
        attributes=attributes,
        id=st.text("abc", min_size=1, max_size=3).map(PublicationId),
        time_s=st.integers(0, 1 << 40).map(lambda time_ms: time_ms / 1000),
        payload=st.none() | st.binary(max_size=4),
    ),
    min_size=1,
    max_size=4,
)


@given(stored)
def test_what_a_publisher_read_from_its_store_is_the_same_request(batch: list[Publication]) -> None:
    """Its key and its bytes: the server compares both."""
    records = [encode_received(ticket, encode_publication(each)) for ticket, each in enumerate(batch, start=1)]
    again = list(replay(records)[0].values())
    assert requests_of(Requests(again, None, key_of_contents)) == requests_of(Requests(batch, None, key_of_contents))


def test_a_batch_with_the_same_ids_and_other_contents_has_another_key() -> None:
    batches = [[Publication(attributes={"n": n}, id=PublicationId("a"))] for n in (1, 2)]
    [one], [other] = (requests_of(Requests(batch, None, key_of_contents)) for batch in batches)
    assert one.key != other.key


def test_an_encrypted_batch_that_is_encoded_anew_counts_as_the_same() -> None:
    cipher = Cipher(Key.generate(Schema.of(NumericAttribute("n", 0, 10, 1))), bytes(32))
    batch = [Publication(attributes={"n": n}, id=PublicationId(f"i{n}")) for n in range(3)]
    [one], [again], [other] = (
        requests_of(Requests(each, cipher, key_of_contents)) for each in (batch, batch, batch[:2])
    )
    assert one.publications != again.publications
    assert one.key == again.key != other.key
    assert fingerprint_of(one.publications) == fingerprint_of(again.publications)
    assert fingerprint_of(one.publications) != fingerprint_of(other.publications)


def test_what_came_of_each_is_known_by_its_place() -> None:
    requests = Requests([{"n": 1}, {"@n": 2}, {"n": 3}, {"n": 4}], None)
    [(places, call)] = list(requests)
    assert places == [0, 2, 3]
    requests.take(places, call.read(Published(["a", Refused("QueueFull", "no room"), "c"])))
    with pytest.raises(PartlyRefused) as raised:
        requests.ids()
    assert {place: type(error) for place, error in raised.value.refused.items()} == {1: InvalidValue, 2: QueueFull}


def test_one_that_is_refused_raises_its_own_error() -> None:
    requests = Requests([{"n": 1}], None)
    [(places, call)] = list(requests)
    requests.take(places, call.read(Published([Refused("QueueFull", "no room")])))
    with pytest.raises(QueueFull, match="no room"):
        only_id(requests)


def test_an_encrypted_publication_shows_its_envelope_and_a_point() -> None:
    key = Key.generate(Schema.of(NumericAttribute("price", 0, 1000, 0.01)))
    publication = Publication(attributes={"price": 5, "symbol": "IBM"}, id=PublicationId("i"), time_s=0.007)
    [request] = requests_of(Requests([publication], key.cipher()))
    row = msgspec.json.decode(request.publications[0])
    assert set(row) == {"@id", "@time_ms", "@point", "@payload"}
    assert len(row["@point"]) == 2


class Busy:
    """A server that has too much to do at first."""

    def __init__(self, times: int) -> None:
        self.keys: list[str] = []
        self._times = times

    def answer(self, call: Call[Any]) -> Any:
        assert isinstance(call.request, Publish)
        self.keys.append(call.request.key)
        if len(self.keys) <= self._times:
            return call.read(Refused("Overloaded", "later"))
        return call.read(Published(["id"]))


def settings(retries: Retries) -> ConnectionSettings:
    return ConnectionSettings.of("lavant://127.0.0.1:1", key="", ca_file=None, timeout_s=1, retries=retries)


QUICK = Retries(within_s=10, first_s=0.001, longest_s=0.001)


def test_a_busy_server_is_asked_again_with_the_same_request(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(3)
    client = Client(settings(QUICK))
    monkeypatch.setattr(client, "run", busy.answer)
    assert client.publish({"n": 1}) == "id"
    assert len(busy.keys) == 4
    assert len(set(busy.keys)) == 1


def test_a_busy_server_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(settings(NO_RETRIES))
    monkeypatch.setattr(client, "run", Busy(1).answer)
    with pytest.raises(Overloaded):
        client.publish({"n": 1})


def test_tasks_are_as_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        busy = Busy(3)

        async def run(call: Call[Any]) -> Any:
            return busy.answer(call)

        client = AsyncClient(settings(QUICK))
        monkeypatch.setattr(client, "run", run)
        assert await client.publish_many([{"n": 1}]) == ["id"]
        assert len(set(busy.keys)) == 1
        client = AsyncClient(settings(NO_RETRIES))
        busy = Busy(1)
        monkeypatch.setattr(client, "run", run)
        with pytest.raises(Overloaded):
            await client.publish({"n": 1})

    asyncio.run(work())

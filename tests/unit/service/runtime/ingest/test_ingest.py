"""The line of publications and changes: order, batches, refusals, and what is answered when."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import numpy as np
from tests.unit.service.runtime.hall import Hall, publications
from tests.unit.service.wiring import Wiring, in_loop

from lavant.broker.filters import parse
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import DeleteQueue, Receive, Received, Refused
from lavant.broker.protocol.subscriptions import EncryptedFilter, Publish, Published, Subscribe, Subscribed, Unsubscribe
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.service.engines.interface import EngineBatch
from lavant.service.engines.local import LocalEngine
from lavant.service.runtime.limits import ServiceLimits


class SlowEngine(LocalEngine):
    """Waits for leave before each batch, and notes what it is told."""

    waits = True

    def __init__(self) -> None:
        super().__init__(slices=2)
        self.may, self.begun = threading.Semaphore(0), threading.Semaphore(0)
        self.batches: list[int] = []

    def publish(self, batch: EngineBatch) -> list[FanOutBatch]:
        self.begun.release()
        self.may.acquire()
        self.batches.append(len(batch.publications))
        return super().publish(batch)


class BrokenEngine(LocalEngine):
    def publish(self, batch: EngineBatch) -> list[FanOutBatch]:
        raise RuntimeError("a mistake")


class Noted:
    """A batch that a log is said to hold."""

    log_name = "plain"

    def __init__(self, end: int) -> None:
        self.end = end
        self.became = ""

    def confirm(self) -> None:
        self.became = "confirmed"

    def withdraw(self) -> None:
        self.became = "withdrawn"


class LaterEngine(LocalEngine):
    """Delivers later, as an engine in another process does."""

    def __init__(self) -> None:
        super().__init__(slices=1)
        self.logged: list[Noted] = []

    def publish(self, batch: EngineBatch) -> Noted:  # type: ignore[override]
        self.logged.append(Noted(len(self.logged) + 1))
        return self.logged[-1]


@in_loop
async def test_a_publication_reaches_those_who_want_it() -> None:
    hall = Hall()
    await hall.ask(Subscribe("a > 1", "large"))
    await hall.ask(Subscribe("a < 3", "small"))
    answer = await hall.ask(Publish(publications(1, 2, 3)))
    assert isinstance(answer, Published)
    assert len(set(map(str, answer.entries))) == 3
    assert await hall.values("large") == [b"2", b"3"]
    assert await hall.values("small") == [b"1", b"2"]
    await hall.close()


@in_loop
async def test_a_batch_is_committed_before_later_requests_are_processed() -> None:
    hall = Hall()
    await hall.ask(Subscribe("a > 1", "large"))
    assert not hall.store.is_at_once
    await hall.ask(Publish(publications(2)))
    assert hall.store.is_at_once
    await hall.close()


class NotingEngine(LocalEngine):
    """Notes in which thread it matches."""

    def __init__(self, *, waits: bool) -> None:
        super().__init__(slices=1)
        self.waits = waits
        self.threads: list[bool] = []

    def publish(self, batch: EngineBatch) -> list[FanOutBatch]:
        self.threads.append(threading.current_thread() is threading.main_thread())
        return super().publish(batch)


@in_loop
async def test_what_costs_little_is_matched_in_the_loop_unless_the_engine_waits() -> None:
    for waits in (False, True):
        engine = NotingEngine(waits=waits)
        hall = Hall(engine)
        for number in range(100):  # until it is known what one costs
            await hall.ask(Publish(publications(number)))
        assert engine.threads[0] is False
        assert engine.threads[-1] is not waits
        answer = await hall.ask(Publish(publications(*range(1500))))
        assert isinstance(answer, Published)
        assert engine.threads[-1] is False, "what so many cost is not known"
        await hall.close()


@in_loop
async def test_a_change_holds_for_all_that_come_behind_it_and_for_none_before() -> None:
    engine = SlowEngine()
    hall = Hall(engine)
    await hall.ask(Subscribe("a > 0", "always"))
    asked = [
        hall.ask(Publish(publications(1))),
        hall.ask(Subscribe("a > 0", "later")),
        hall.ask(Publish(publications(2))),
        hall.ask(Unsubscribe("always")),
        hall.ask(Publish(publications(3))),
    ]
    for _ in range(3):
        engine.may.release()
    await asyncio.gather(*asked)
    assert await hall.values("later") == [b"2", b"3"]
    assert engine.batches == [1, 1, 1]
    await hall.close()


@in_loop
async def test_what_gathers_while_the_engine_is_busy_is_matched_together() -> None:
    engine = SlowEngine()
    hall = Hall(engine)
    await hall.ask(Subscribe("a > 0", "all"))
    first = hall.ask(Publish(publications(1)))
    await asyncio.to_thread(engine.begun.acquire)
    others = [hall.ask(Publish(publications(n))) for n in range(2, 40)]
    await asyncio.sleep(0.01)
    engine.may.release()
    engine.may.release()
    answers = await asyncio.gather(first, *others)
    assert engine.batches == [1, 38]
    ids = [entry for answer in answers if isinstance(answer, Published) for entry in answer.entries]
    assert len(set(map(str, ids))) == 39
    assert await hall.values("all") == [b"%d" % n for n in range(1, 40)]
    await hall.close()


@in_loop
async def test_nothing_is_answered_before_it_is_durable() -> None:
    wiring = Wiring(engine=LocalEngine(slices=1))
    subscribing = asyncio.ensure_future(wiring.service.execute(Subscribe("a > 0", "s")))
    while not wiring.store.is_hurried:
        await asyncio.sleep(0.001)
    assert not subscribing.done()
    wiring.store.commit()
    await subscribing
    publishing = asyncio.ensure_future(wiring.service.execute(Publish(publications(1))))
    while not wiring.store.is_hurried:
        await asyncio.sleep(0.001)
    assert not publishing.done()
    wiring.store.commit()
    await publishing
    await wiring.service.ingest.close()


@in_loop
async def test_a_request_that_comes_twice_is_done_once() -> None:
    hall = Hall()
    await hall.ask(Subscribe("a > 0", "s"))
    first = await hall.ask(Publish([*publications(1), b"x"], "key"))
    assert await hall.ask(Publish([*publications(1), b"x"], "key")) == first
    await hall.ask(Publish(publications(1), "another"))
    assert len(await hall.bodies("s")) == 2
    await hall.close()


@in_loop
async def test_a_request_that_comes_again_before_it_is_answered_is_done_once() -> None:
    engine = SlowEngine()
    hall = Hall(engine)
    await hall.ask(Subscribe("a > 0", "s"))
    blocker = hall.ask(Publish(publications(1)))
    await asyncio.sleep(0.01)
    waits = [hall.ask(Publish(publications(2), "waits")) for _ in range(3)]
    await asyncio.sleep(0.01)
    engine.may.release()
    await blocker
    waits.append(hall.ask(Publish(publications(2), "waits")))  # it is being matched now
    await asyncio.sleep(0.01)
    engine.may.release(2)
    answers = await asyncio.gather(*waits, hall.ask(Publish(publications(2), "waits")))
    assert [answer == answers[0] for answer in answers] == [True] * 5
    assert await hall.values("s") == [b"1", b"2"]
    await hall.close()


@in_loop
async def test_a_repetition_is_not_answered_before_the_first_is_durable() -> None:
    wiring = Wiring(engine=LocalEngine(slices=1))
    wiring.store.commit()
    first = asyncio.ensure_future(wiring.service.execute(Publish(publications(1), "key")))
    while not wiring.store.is_hurried:
        await asyncio.sleep(0.001)
    again = asyncio.ensure_future(wiring.service.execute(Publish(publications(1), "key")))
    await asyncio.sleep(0.01)
    assert not again.done()
    wiring.store.commit()
    assert isinstance(await again, Published)
    assert await first == await again
    await wiring.service.ingest.close()


@in_loop
async def test_a_full_queue_refuses_what_it_would_get_and_nothing_else() -> None:
    hall = Hall()
    await hall.ask(Subscribe("a > 2", "s", config=QueueConfig(depth_max=1)))
    await hall.ask(Subscribe("a > 0", "t"))
    answer = await hall.ask(Publish(publications(1, 3, 2, 4), "key"))
    assert isinstance(answer, Published)
    codes = [entry.code if isinstance(entry, Refused) else "" for entry in answer.entries]
    assert codes == ["", "", "", "QueueFull"]
    assert await hall.values("s") == [b"3"]
    assert await hall.values("t") == [b"1", b"3", b"2"]
    assert await hall.ask(Publish(publications(1, 3, 2, 4), "key")) == answer
    await hall.close()


@in_loop
async def test_a_full_disk_refuses_publications_and_takes_them_again_later() -> None:
    hall = Hall()
    await hall.ask(Subscribe("a > 0", "s"))
    hall.server.is_full = hall.store.is_full = True
    refused = await hall.ask(Publish(publications(1), "key"))
    assert isinstance(refused, Published)
    assert [entry.code for entry in refused.entries if isinstance(entry, Refused)] == ["StorageFull"]
    hall.server.is_full = hall.store.is_full = False
    accepted = await hall.ask(Publish(publications(1), "key"))
    assert isinstance(accepted, Published)
    assert isinstance(accepted.entries[0], str)
    await hall.close()


@in_loop
async def test_more_than_may_wait_is_refused_at_once_and_what_waits_is_done() -> None:
    engine = SlowEngine()
    hall = Hall(engine, ServiceLimits(publications_waiting_max=5))
    await hall.ask(Subscribe("a > 0", "s"))
    asked = [hall.ask(Publish(publications(n, n))) for n in range(1, 5)]
    await asyncio.sleep(0.01)
    assert [each.done() for each in asked] == [False, False, True, True]
    refused = asked[3].result()
    assert isinstance(refused, Refused)
    assert refused.code == "Overloaded"
    for _ in range(2):
        engine.may.release()
    await asyncio.gather(*asked)
    assert hall.service.ingest.waiting == 0
    engine.may.release()
    assert isinstance(await hall.ask(Publish(publications(9))), Published)
    assert await hall.values("s") == [b"1", b"1", b"2", b"2", b"9"]
    await hall.close()


@in_loop
async def test_a_larger_request_than_may_wait_is_taken_when_nothing_else_waits() -> None:
    hall = Hall(limits=ServiceLimits(publications_waiting_max=5))
    assert isinstance(await hall.ask(Publish(publications(*range(9)))), Published)
    await hall.close()


@in_loop
async def test_bad_requests_are_refused_and_the_line_goes_on() -> None:
    hall = Hall()
    codes = []
    for request in (
        Publish([]),
        Publish(publications(1), "x" * 129),
        Subscribe("a >", "s"),
        Subscribe("a > 1", "bad name"),
        Subscribe(EncryptedFilter(3, bytes(8)), "s"),
        Unsubscribe("nobody"),
    ):
        answer = await hall.ask(request)
        assert isinstance(answer, Refused)
        codes.append(answer.code)
    assert codes == [
        "InvalidValue",
        "LimitExceeded",
        "FilterSyntaxError",
        "InvalidValue",
        "InvalidValue",
        "UnknownSubscription",
    ]
    assert isinstance(await hall.ask(Subscribe("a > 1", "s")), Subscribed)
    await hall.close()


@in_loop
async def test_a_mistake_of_the_engine_stops_the_server_and_answers_nobody() -> None:
    wiring = Wiring(engine=BrokenEngine(slices=1))
    asked = asyncio.ensure_future(wiring.service.execute(Publish(publications(1))))
    while not wiring.failures:
        await asyncio.sleep(0.001)
    assert str(wiring.failures[0]) == "a mistake"
    assert not asked.done()
    asked.cancel()
    await wiring.service.ingest.close()


@in_loop
async def test_what_an_engine_delivers_later_is_answered_now() -> None:
    engine = LaterEngine()
    hall = Hall(engine)
    await hall.ask(Subscribe("a > 0", "s"))
    answer = await hall.ask(Publish(publications(1), "key"))
    assert isinstance(answer, Published)
    assert await hall.bodies("s") == []
    assert [each.became for each in engine.logged] == ["confirmed"]
    lanes = hall.server.broker.subscriptions.log_offsets
    assert lanes["plain"] == (1, 0)
    assert await hall.ask(Publish(publications(1), "key")) == answer
    assert lanes["plain"] == (1, 0)
    hall.store.is_full = hall.server.is_full = True
    assert isinstance(await hall.ask(Publish(publications(1), "other")), Refused)
    assert [each.became for each in engine.logged] == ["confirmed", "withdrawn"]
    assert lanes["plain"] == (1, 0)
    await hall.close()


@in_loop
async def test_subscriptions_that_end_with_their_queue_match_no_more() -> None:
    hall = Hall()
    await hall.ask(Subscribe("a > 0", "s", "shared"))
    await hall.ask(DeleteQueue("shared"))
    await hall.ask(Subscribe("a > 5", "t", "shared"))
    await hall.ask(Publish(publications(1, 9)))
    assert await hall.values("shared") == [b"9"]
    await hall.close()


@in_loop
async def test_those_who_wait_get_what_is_published() -> None:
    hall = Hall()
    await hall.ask(Subscribe("a > 0", "s"))
    waiting = hall.ask(Receive("s", wait_ms=10_000))
    gone = hall.ask(Receive("s", wait_ms=10_000))
    await asyncio.sleep(0)
    await hall.ask(Publish(publications(7)))
    received = await waiting
    assert isinstance(received, Received)
    assert len(received.deliveries) == 1
    await hall.ask(Unsubscribe("s"))
    refused = await gone
    assert isinstance(refused, Refused)
    assert refused.code == "UnknownQueue"
    await hall.close()


@in_loop
async def test_plain_and_encrypted_live_side_by_side_and_the_first_decides_what_fits() -> None:

    key = Key.generate(Schema.of(NumericAttribute("a", 0, 100, 1)))
    tests = key.encrypt_filters([parse("a > 5")]).tests[0]
    points = [{"@point": point.tolist()} for point in key.encrypt_publications([{"a": 3}, {"a": 8}]).points]

    hall = Hall()
    await hall.ask(Subscribe("a > 5", "plain"))
    filter = EncryptedFilter(tests.shape[1], tests.astype("<f8").tobytes())
    other = EncryptedFilter(4, np.ones((8, 4)).tobytes())
    asked = [hall.ask(Subscribe(filter, "hidden")), hall.ask(Subscribe(other, "other"))]
    first, second = await asyncio.gather(*asked)
    assert isinstance(first, Subscribed)
    assert isinstance(second, Refused)
    mixed = [msgspec.json.encode(points[0]), *publications(9, 1), msgspec.json.encode(points[1])]
    odd = msgspec.json.encode({"@point": [1.0, 2.0, 3.0]})
    answer = await hall.ask(Publish([*mixed, odd]))
    assert isinstance(answer, Published)
    assert await hall.values("plain") == [b"9"]
    [body] = await hall.bodies("hidden")
    assert msgspec.json.decode(body)["@id"] == answer.entries[3]
    await hall.close()


async def conflicts(hall: Hall, *requests: Publish) -> bool:
    """Whether each is refused because its key belongs to another."""
    answers = [await hall.ask(request) for request in requests]
    return all(isinstance(answer, Refused) and answer.code == "IdempotencyConflict" for answer in answers)


@in_loop
async def test_a_key_with_other_publications_is_refused_and_nothing_is_published() -> None:
    hall = Hall()
    await hall.ask(Subscribe("a > 0", "s"))
    first = await hall.ask(Publish(publications(1, 2), "key"))
    others = (publications(2, 1), publications(1), publications(1, 2, 3), [b'{"a": 1}{', b'"a": 2}'])
    assert await conflicts(hall, *(Publish(each, "key") for each in others))
    assert await hall.ask(Publish(publications(1, 2), "key")) == first
    assert await hall.values("s") == [b"1", b"2"]
    await hall.close()


@in_loop
async def test_a_key_with_other_publications_is_refused_while_the_first_is_under_way() -> None:
    engine = SlowEngine()
    hall = Hall(engine)
    await hall.ask(Subscribe("a > 0", "s"))
    waiting = [hall.ask(Publish(publications(1), "key")) for _ in range(2)]
    await asyncio.sleep(0)
    assert await conflicts(hall, Publish(publications(2), "key"))
    assert not any(each.done() for each in waiting)
    engine.may.release(2)
    assert len({str(await each) for each in waiting}) == 1
    assert await hall.values("s") == [b"1"]
    await hall.close()


@in_loop
async def test_the_same_key_of_two_namespaces_is_two_keys() -> None:
    engine = SlowEngine()
    hall = Hall(engine)
    engine.may.release(100)
    for namespace in ("", "x", "y"):
        await hall.ask(Subscribe("a > 0", "s", namespace=namespace))
    asked = [hall.ask(Publish(publications(n), "key", ns)) for n, ns in enumerate(("", "x", "y"), start=1)]
    answers = await asyncio.gather(*asked)  # the others come while the first is under way
    again = [await hall.ask(Publish(publications(n), "key", ns)) for n, ns in enumerate(("", "x", "y"), start=1)]
    assert again == answers
    assert [await hall.values(queue) for queue in ("s", "x/s", "y/s")] == [[b"1"], [b"2"], [b"3"]]
    await hall.close()


@in_loop
async def test_a_key_whose_request_was_refused_is_free() -> None:
    hall = Hall()
    hall.server.is_full = hall.store.is_full = True
    await hall.ask(Publish(publications(1), "key"))
    hall.server.is_full = hall.store.is_full = False
    assert isinstance(await hall.ask(Publish(publications(2), "key")), Published)
    await hall.close()

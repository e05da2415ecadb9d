"""From what the loop notes to rows: every message by its own times, and the figures of a load that is known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.machine.effects import Reply
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.jobs import (
    CompleteTask,
    FailTask,
    JobSubmitted,
    LeaseTasks,
    Reported,
    SubmitJob,
    TaskAssignment,
    TasksLeased,
)
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    CreateQueue,
    Delivery,
    FanOut,
    Receipt,
    Receive,
    Received,
    Refused,
    Send,
    SendEntry,
    Sent,
    SentEntry,
)
from lavant.broker.protocol.subscriptions import Deliver, Subscribe
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.core.estimation import EstimationConfig, Estimator
from lavant.core.telemetry import TELEMETRY_SCHEMA, checked_telemetry, telemetry_batch
from lavant.service.observability.telemetry.digest import TABLE_MAX, Digest, _distinct
from lavant.service.observability.telemetry.events import BUSY_FROM, RECEIVES_TIMED, SAMPLED, TelemetryEvents
from lavant.service.observability.telemetry.rows import Rows
from lavant.service.observability.telemetry.stages import Stages


class Bench:
    """A server that reports to telemetry, at times that the test says."""

    def __init__(self, events_max: int = 1000) -> None:
        self.now_us = 1_000_000
        self.server = BrokerMachine(BrokerState())
        self.server.open(1)
        self.queues = self.server.queues
        self.paused: list[Callable[[], None]] = []
        self.events = TelemetryEvents(self.queues, events_max, lambda: self.now_us * 1000, later=self.paused.append)
        self.server.observe(self.events.observers)
        self.rows, self.stages = Rows("h1"), Stages()
        self.digest = Digest(self.rows, self.stages, self._name_of, last=self.queues.number)

    def ask(self, request: Any, at_us: int) -> Any:
        self.now_us = at_us
        effects = self.server.request("c", 1, request, None, at_us // 1000)
        effects += self.server.committed(1 << 40, at_us // 1000)
        return next(effect.answer for effect in effects if isinstance(effect, Reply))

    def tell(self, command: Any, answer: Any) -> None:
        """As a server would."""
        observer = self.events.observers.get(type(command))
        if observer is not None:
            observer(command, answer)

    def observed(self) -> pa.RecordBatch:
        self.digest.take(self.events.take())
        rows = self.rows.take().cast(TELEMETRY_SCHEMA).combine_chunks().to_batches()
        return checked_telemetry(rows[0] if rows else telemetry_batch([]))

    def take(self) -> list[dict[str, Any]]:
        """The rows until now, without what is the same in all; their order says nothing."""
        rows = self.observed().to_pylist()
        return ordered([{name: value for name, value in row.items() if name in SHOWN and value} for row in rows])

    def _name_of(self, serial: int) -> str | None:
        return next(iter(self.queues.names_of([serial])), None)


SHOWN = {"time_us", "kind", "job_type", "topic", "duration_us", "outcome", "publications", "subscriptions", "matches"}


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["time_us"], row["kind"], row.get("topic", ""), row.get("duration_us", 0)))


def row(kind: str, time_us: int, topic: str, duration_us: int | None = None, **more: Any) -> dict[str, Any]:
    found = {"kind": kind, "time_us": time_us, "topic": topic, "duration_us": duration_us, "outcome": "ok", **more}
    return {name: value for name, value in found.items() if value}


def test_a_message_is_an_arrival_then_a_service_and_a_response() -> None:
    bench = Bench()
    bench.ask(CreateQueue("q", QueueConfig()), 2_000_000)
    bench.ask(Send("q", [SendEntry(b"x"), SendEntry(b"y")]), 3_000_000)
    received = bench.ask(Receive("q", 2), 3_400_000)
    bench.ask(Acknowledge("q", [received.deliveries[1].receipt]), 3_500_000)
    bench.ask(Acknowledge("q", [received.deliveries[0].receipt]), 4_000_000)
    assert bench.take() == ordered(
        [
            row("arrival", 3_000_000, "q", publications=2),
            row("service", 3_500_000, "q", 100_000),
            row("response", 3_500_000, "q", 500_000),
            row("service", 4_000_000, "q", 600_000),
            row("response", 4_000_000, "q", 1_000_000),
        ]
    )
    assert bench.stages.times["queue"].sum == pytest.approx(0.8)
    assert bench.stages.times["response"].sum == pytest.approx(1.5)


def test_what_was_acknowledged_in_vain_is_no_service() -> None:
    bench = Bench()
    bench.ask(CreateQueue("q", QueueConfig()), 2_000_000)
    bench.ask(Send("q", [SendEntry(b"x")]), 3_000_000)
    [delivery] = bench.ask(Receive("q", 1, visibility_ms=1000), 4_000_000).deliveries
    [again] = bench.ask(Receive("q", 1, visibility_ms=1000), 6_000_000).deliveries
    late = bench.ask(Acknowledge("q", [delivery.receipt]), 6_100_000)
    assert late.refused
    bench.ask(Acknowledge("q", [again.receipt, Receipt(99, 1)]), 6_500_000)
    bench.ask(Acknowledge("q", [again.receipt]), 6_600_000)
    assert bench.take()[1:] == [row("response", 6_500_000, "q", 3_500_000), row("service", 6_500_000, "q", 500_000)]


def test_messages_from_before_have_a_service_and_no_response() -> None:
    old = Bench()
    old.ask(CreateQueue("q", QueueConfig()), 2_000_000)
    old.ask(Send("q", [SendEntry(b"x")]), 2_100_000)
    old.digest = Digest(old.rows, old.stages, lambda serial: None, last=old.queues.number)
    old.events.take()
    [delivery] = old.ask(Receive("q"), 3_000_000).deliveries
    old.ask(Acknowledge("q", [delivery.receipt]), 3_200_000)
    assert old.take() == [row("service", 3_200_000, "q", 200_000)]


def test_publications_are_seen_at_access_in_matching_and_in_each_queue() -> None:
    bench = Bench()
    for name in ("s", "t"):
        bench.ask(Subscribe("a > 0", name), 2_000_000)
    serials = [bench.queues.serial("s"), bench.queues.serial("t"), 999]
    spread = FanOut([b"x", b"y"], _integers(*serials), _integers(2, 3, 4), _integers(0, 1, 1, 0))
    bench.now_us = 2_900_000
    bench.events.arrived(2)
    bench.events.matched(2, 2, 3, 0.05)
    bench.events.matched(4, 1, 9, None)
    bench.now_us = 3_000_000
    bench.server.deliver(Deliver(spread), [], 3000)
    deliveries = bench.ask(Receive("s", 2), 3_500_000).deliveries
    bench.ask(Acknowledge("s", [delivery.receipt for delivery in deliveries]), 3_600_000)
    assert bench.take() == ordered(
        [
            row("arrival", 2_900_000, "@access", publications=2),
            row("match", 2_900_000, "@match", publications=2, subscriptions=2, matches=3),
            row("match", 2_900_000, "@match", publications=4, subscriptions=1, matches=4),
            row("service", 2_900_000, "@match", 50_000),
            row("arrival", 3_000_000, "s", publications=2),
            row("arrival", 3_000_000, "t", publications=1),
            row("service", 3_600_000, "s", 100_000),
            row("service", 3_600_000, "s", 100_000),
            row("response", 3_600_000, "s", 600_000),
            row("response", 3_600_000, "s", 600_000),
        ]
    )


def test_batches_that_are_noted_together_are_told_apart() -> None:
    bench = Bench()
    for name in ("s", "t"):
        bench.ask(Subscribe("a > 0", name), 2_000_000)
    s, t = bench.queues.serial("s"), bench.queues.serial("t")
    for time_us, queues, ends in ((3_000_000, (s, t), (2, 3)), (4_000_000, (t,), (1,))):
        bench.now_us = time_us
        places = _integers(*(number % 2 for number in range(ends[-1])))
        bench.server.deliver(Deliver(FanOut([b"x", b"y"], _integers(*queues), _integers(*ends), places)), [], 3000)
    assert bench.take() == [
        row("arrival", 3_000_000, "s", publications=2),
        row("arrival", 3_000_000, "t", publications=1),
        row("arrival", 4_000_000, "t", publications=1),
    ]
    assert bench.stages.counts["exit"] == 4


def test_jobs_arrive_are_served_at_topics_and_respond_as_a_whole() -> None:
    bench = Bench()
    where = [(1, "build", 1, "order"), (1, "ship", 1, "order")]
    steps: list[tuple[int, Any, Any]] = [
        (2, SubmitJob("order"), JobSubmitted(1, is_new=True)),
        (2, SubmitJob("order"), JobSubmitted(1, is_new=False)),
        (3, LeaseTasks("building", "w"), _leased(where[0])),
        (4, CompleteTask(1, "build", 1), _reported("running")),
        (5, LeaseTasks("shipping", "w"), _leased(where[1])),
        (8, FailTask(1, "ship", 1), _reported("failed")),
        (9, FailTask(1, "ship", 1), _reported("failed", is_new=False)),
    ]
    for seconds, command, answer in steps:
        bench.now_us = seconds * 1_000_000
        bench.tell(command, answer)
    assert bench.take() == ordered(
        [
            row("arrival", 2_000_000, "", publications=1, job_type="order"),
            row("service", 4_000_000, "building", 1_000_000, job_type="order"),
            row("service", 8_000_000, "shipping", 3_000_000, job_type="order") | {"outcome": "failed"},
            row("response", 8_000_000, "", 6_000_000, job_type="order") | {"outcome": "failed"},
        ]
    )


def _leased(task: tuple[int, str, int, str]) -> TasksLeased:
    job, name, attempt, job_type = task
    return TasksLeased([TaskAssignment(job, job_type, name, attempt, 0, b"", {})])


def _reported(state: str, *, is_new: bool = True) -> Any:
    return Reported(is_new, state)


def test_more_than_the_bound_is_dropped_and_counted() -> None:
    bench = Bench(events_max=3)
    for _ in range(5):
        bench.events.arrived(1)
    assert bench.events.dropped == 2
    assert len(bench.take()) == 3
    bench.events.arrived(1)
    assert len(bench.take()) == 1


STEPS = st.lists(st.tuples(st.sampled_from(["send", "receive", "acknowledge"]), st.integers(1, 4)), max_size=40)


@given(steps=STEPS, seed=st.integers(0, 5))
def test_every_message_has_its_own_times(steps: list[tuple[str, int]], seed: int) -> None:
    bench, chance = Bench(), np.random.default_rng(seed)
    for queue in ("a", "b"):
        bench.ask(CreateQueue(queue, QueueConfig()), 1_500_000)
    sent: dict[int, int] = {}
    taken: dict[int, tuple[int, Receipt, str]] = {}
    expected: list[tuple[str, int, str, int]] = []
    now_us = 2_000_000
    for kind, count in steps:
        now_us += int(chance.integers(1, 10_000))
        queue = ("a", "b")[int(chance.integers(2))]
        if kind == "send":
            answer = bench.ask(Send(queue, [SendEntry(b"x")] * count), now_us)
            sent |= {entry.number: now_us for entry in answer.entries}
        elif kind == "receive":
            for delivery in bench.ask(Receive(queue, count, wait_ms=0), now_us).deliveries:
                taken[delivery.receipt.number] = (now_us, delivery.receipt, queue)
        else:
            done = [number for number, (_, _, of) in taken.items() if of == queue][:count]
            if done:
                bench.ask(Acknowledge(queue, [taken[number][1] for number in done]), now_us)
            expected += [("service", now_us, queue, now_us - taken[number][0]) for number in done]
            expected += [("response", now_us, queue, now_us - sent[number]) for number in done]
            for number in done:
                del taken[number]
        if chance.random() < 0.3:
            bench.digest.take(bench.events.take())
    rows = [row for row in bench.take() if row["kind"] != "arrival"]
    found = [(row["kind"], row["time_us"], row["topic"], row.get("duration_us", 0)) for row in rows]
    assert sorted(found) == sorted(expected)


def test_the_figures_of_a_known_load_come_out() -> None:
    """400 messages a second, Poisson; two consumers, each busy for gamma(4) with a mean of 4 ms: λ, μ, ca², cs².

    So many that some are drawn to be timed, after pauses.
    """
    chance, bench = np.random.default_rng(3), Bench(events_max=1 << 20)
    bench.events._chance = lambda most: int(chance.integers(1, most + 1))
    counters = bench.queues._counters
    arrivals = np.cumsum(chance.exponential(1e6 / 400, 40_000)).astype(int).tolist()
    services = chance.gamma(4, 1000, len(arrivals)).astype(int).tolist()
    free = [0, 0]
    notes: list[tuple[int, Any, Any]] = []
    for number, (arrived, service) in enumerate(zip(arrivals, services, strict=True), 1):
        start = max(arrived, min(free))
        free[free.index(min(free))] = start + service
        receipt = Receipt(number, 1)
        notes.append((arrived, Send("q", []), Sent([SentEntry(number)])))
        notes.append((start, Receive("q"), Received([_delivery(receipt)])))
        notes.append((start + service, Acknowledge("q", [receipt]), Acknowledged({})))
    resume_us = hand_over_us = 0
    for time_us, command, answer in sorted(notes, key=lambda note: note[0]):
        if time_us > resume_us and bench.paused:
            bench.paused.pop()()
        if time_us > hand_over_us:
            bench.digest.take(bench.events.take())
            hand_over_us = time_us + 2_000_000
        bench.now_us = time_us
        counters.number += isinstance(command, Send)
        bench.tell(command, answer)
        if not bench.paused:
            resume_us = time_us + 80_000
    estimator = Estimator(EstimationConfig(window_ms=20_000, lateness_ms=0, topics_overall=False))
    estimator.observe(bench.observed())
    estimates = estimator.close(estimator.watermark_ms)
    assert len(estimates) >= 4
    for e in estimates:
        assert e.topic == "q"
        assert e.arrival_rate_per_s == pytest.approx(400, rel=0.05)
        assert e.arrival_scv == pytest.approx(1, abs=0.1)
        assert 500 < e.services < 2000
        assert e.service_rate_per_s == pytest.approx(250, rel=0.06)
        assert e.service_scv == pytest.approx(0.25, abs=0.06)
        assert e.response_p50_ms is not None
        assert e.response_p50_ms > 4
    assert all(a.window_end_ms == b.window_start_ms for a, b in pairwise(estimates))


def _delivery(receipt: Receipt) -> Any:
    return Delivery(receipt, b"", b"", 0, 0, 1, "", "")


def _integers(*values: int) -> bytes:
    return np.array(values, INTEGERS).tobytes()


def test_refused_entries_are_no_arrivals() -> None:
    bench = Bench()
    bench.now_us = 2_000_000
    bench.tell(Send("q", [SendEntry(b"x")] * 2), Sent([Refused("QueueFull", ""), SentEntry(1)]))
    bench.tell(Send("q", [SendEntry(b"x")]), Sent([Refused("QueueFull", "")]))
    assert bench.take() == [row("arrival", 2_000_000, "q", publications=1)]


class Busy(Bench):
    """One message after the other; of five receives after a pause, the fifth is timed."""

    def __init__(self) -> None:
        super().__init__(events_max=100_000)
        self.events._chance = lambda most: 5
        self.ask(CreateQueue("q", QueueConfig()), 2_000_000)

    def cycle(self) -> None:
        self.now_us += 1
        self.ask(Send("q", [SendEntry(b"x")]), self.now_us)
        [delivery] = self.ask(Receive("q"), self.now_us).deliveries
        self.ask(Acknowledge("q", [delivery.receipt]), self.now_us)

    def cycles(self, count: int, *, pause_after: int = 1 << 30) -> int:
        """How many were timed."""
        for number in range(1, count + 1):
            self.cycle()
            if number % pause_after == 0:
                self.resume()
        return sum(row["kind"] == "service" for row in self.take())

    def resume(self) -> None:
        while self.paused:
            self.paused.pop()()


def test_under_full_load_receives_are_timed_from_time_to_time() -> None:
    busy = Busy()
    assert busy.cycles(3 * RECEIVES_TIMED) == RECEIVES_TIMED
    assert busy.cycles(100) == 0, "there was no end of the pause yet"
    busy.resume()
    assert busy.cycles(RECEIVES_TIMED + 400, pause_after=100) == RECEIVES_TIMED + 4 * SAMPLED


def test_a_load_that_stays_full_is_known_from_the_time_before() -> None:
    busy = Busy()
    busy.cycles(RECEIVES_TIMED)
    busy.resume()
    for _ in range(2):
        assert busy.cycles(1300, pause_after=100) == 13 * SAMPLED >= BUSY_FROM
    assert busy.cycles(1200, pause_after=100) == 12 * SAMPLED < BUSY_FROM, "from here on, all are timed again"
    assert busy.cycles(5) == 1
    assert busy.cycles(50) == 50


def test_what_is_not_noted_is_not_even_looked_at() -> None:
    """The observers return at once then: that is most of a server's work under full load."""
    busy = Busy()
    table = dict(busy.events.observers)
    assert looks_at(busy, Receive)
    assert not looks_at(busy, Acknowledge)
    busy.cycles(RECEIVES_TIMED)
    assert not looks_at(busy, Receive)
    assert not looks_at(busy, Acknowledge)
    busy.resume()
    assert looks_at(busy, Receive)
    busy.ask(Send("q", [SendEntry(b"x")] * 5), busy.now_us)
    deliveries = [busy.ask(Receive("q"), busy.now_us).deliveries[0] for _ in range(5)]
    assert looks_at(busy, Acknowledge)
    busy.ask(Acknowledge("q", [deliveries[0].receipt]), busy.now_us)
    assert looks_at(busy, Acknowledge)
    busy.ask(Acknowledge("q", [deliveries[4].receipt]), busy.now_us)
    assert not looks_at(busy, Acknowledge)
    assert busy.events.observers == table, "the table is fixed"


def looks_at(bench: Bench, kind: type) -> bool:
    """Whether the observer reads anything of a command or its answer: neither has a field here."""
    try:
        bench.events.observers[kind](object(), object())
    except AttributeError:
        return True
    return False


@pytest.mark.parametrize("span", [1, 50, TABLE_MAX - 1, TABLE_MAX, 1 << 32])
def test_queues_are_told_apart_however_far_their_numbers_are(span: int) -> None:
    rng = np.random.default_rng(span)
    serials = (rng.integers(0, min(span, 200), 1000) * (span // min(span, 200))).astype(np.uint32)
    distinct, places = _distinct(serials)
    assert distinct.tolist() == sorted(set(serials.tolist()))
    assert distinct[places].tolist() == serials.tolist()

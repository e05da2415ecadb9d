"""Which attempts are with another broker, and who keeps their leases."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lavant.broker.protocol.amqp_messages import AttemptKey, Relayed, decode_relayed
from lavant.broker.protocol.jobs import TaskAssignment
from lavant.service.rabbitmq.ledger import SLACK_S, AttemptLedger

LEASE_S = 10.0


def relayed(job: int, topic: str = "A") -> Relayed:
    return Relayed(topic, TaskAssignment(job, "one", "a", 1, 0, b"input", {}, 60_000))


def ledger_of(*jobs: int, now_s: float = 0.0) -> AttemptLedger:
    ledger = AttemptLedger(LEASE_S)
    for job in jobs:
        ledger.leased(relayed(job), now_s)
    return ledger


def publish(ledger: AttemptLedger) -> None:
    for entry in ledger.unpublished("A"):
        ledger.published(entry)


def due(ledger: AttemptLedger, ready: int | None, now_s: float) -> list[int]:
    found = ledger.to_extend(None if ready is None else {"A": ready}, now_s)
    return [entry.key.job for entry in found]


def key(job: int) -> AttemptKey:
    return AttemptKey(job, "a", 1)


def test_what_is_leased_is_published_once_and_its_body_let_go() -> None:
    ledger = ledger_of(1, 2)
    entries = ledger.unpublished("A")
    assert [decode_relayed(entry.body) for entry in entries] == [relayed(1), relayed(2)]
    publish(ledger)
    assert ledger.unpublished("A") == []
    assert [entry.body for entry in entries] == [b"", b""]
    assert (ledger.count("A"), ledger.count("B"), ledger.counts()) == (2, 0, {"A": 2})


def test_an_attempt_is_its_first_workers_as_long_as_it_is_open() -> None:
    ledger = ledger_of(1)
    assert ledger.claim("A", key(1), "ann")
    assert ledger.claim("A", key(1), "ann")
    assert not ledger.claim("A", key(1), "bob")
    ledger.ended("A", key(1))
    assert ledger.claim("A", key(1), "bob"), "the server knows better now"


def test_a_worker_may_be_quicker_than_the_confirmation() -> None:
    ledger = ledger_of(1)
    [entry] = ledger.unpublished("A")
    assert ledger.claim("A", key(1), "ann")
    ledger.published(entry)
    assert not ledger.claim("A", key(1), "bob")
    assert ledger.unpublished("A") == []


def test_leases_that_are_half_over_are_kept_for_those_that_wait() -> None:
    ledger = ledger_of(1, 2, 3)
    publish(ledger)
    assert due(ledger, 3, 0.4 * LEASE_S) == []
    assert due(ledger, 3, 0.6 * LEASE_S) == [1, 2, 3]
    assert due(ledger, 2, 0.6 * LEASE_S) == [2, 3], "the oldest was taken, or is lost"
    assert due(ledger, 0, 0.6 * LEASE_S) == []


def test_workers_keep_their_own() -> None:
    ledger = ledger_of(1, 2)
    publish(ledger)
    ledger.claim("A", key(1), "ann")
    assert due(ledger, 5, 0.6 * LEASE_S) == [2]


def test_what_is_not_published_yet_is_kept() -> None:
    assert due(ledger_of(1), 0, 0.6 * LEASE_S) == [1]


def test_while_the_broker_is_away_all_are_kept() -> None:
    ledger = ledger_of(1, 2, 3)
    publish(ledger)
    ledger.claim("A", key(1), "ann")
    assert due(ledger, None, 0.6 * LEASE_S) == [1, 2, 3]


def test_a_lease_that_ran_out_is_forgotten_and_one_that_was_extended_is_not() -> None:
    ledger = ledger_of(1, 2)
    ledger.claim("A", key(1), "ann")
    ledger.extended("A", key(1), "ann", 2 * LEASE_S)
    ledger.forget(LEASE_S + SLACK_S)
    assert ledger.count("A") == 2
    ledger.forget(LEASE_S + SLACK_S + 0.1)
    assert [entry.key for entry in ledger.entries()] == [key(1)]


def test_what_was_there_before_the_server_is_known_by_what_waits_and_by_who_reports() -> None:
    ledger = AttemptLedger(LEASE_S)
    ledger.recovered(relayed(1), 0.0)
    assert due(ledger, 1, 0.0) == [1], "nobody knows what is left of its lease"
    ledger.extended("A", key(2), "ann", LEASE_S)
    assert not ledger.claim("A", key(2), "bob")
    assert ledger.count("A") == 2


def test_what_was_published_though_nobody_said_so_is_not_published_again() -> None:
    ledger = ledger_of(1, 2)
    ledger.recovered(relayed(1), 0.0)
    assert [entry.key for entry in ledger.unpublished("A")] == [key(2)]


class Ledgers(RuleBasedStateMachine):
    """Against a model: an attempt never has two workers, and only one that waits or is unpublished is kept here."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = AttemptLedger(LEASE_S)
        self.owner: dict[int, str] = {}
        self.open: set[int] = set()
        self.published: set[int] = set()
        self.jobs = 0

    @rule()
    def lease(self) -> None:
        self.jobs += 1
        self.ledger.leased(relayed(self.jobs), 0.0)
        self.open.add(self.jobs)

    @rule()
    def publish(self) -> None:
        unpublished = self.ledger.unpublished("A")
        assert {entry.key.job for entry in unpublished} == self.open - self.published - set(self.owner)
        for entry in unpublished:
            self.ledger.published(entry)
            self.published.add(entry.key.job)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), worker=st.sampled_from(["ann", "bob"]))
    def claim(self, data: st.DataObject, worker: str) -> None:
        job = data.draw(st.sampled_from(sorted(self.open)))
        assert self.ledger.claim("A", key(job), worker) == (self.owner.setdefault(job, worker) == worker)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.open)))
        self.ledger.ended("A", key(job))
        self.open.discard(job)
        self.owner.pop(job, None)

    @invariant()
    def counts_and_leases(self) -> None:
        assert self.ledger.count("A") == len(self.open)
        waiting = sorted(job for job in self.open if job in self.published and job not in self.owner)
        unpublished = sorted(self.open - self.published - set(self.owner))
        for ready in range(len(waiting) + 2):
            kept = [] if ready == 0 else waiting[-ready:]
            assert sorted(due(self.ledger, ready, LEASE_S)) == sorted(unpublished + kept)


TestLedgers = Ledgers.TestCase

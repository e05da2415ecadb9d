"""The real server of queues in virtual time: it holds, mistakes that are put into it are found, and runs repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.repetition import check_repetition

from lavant.broker.machine.effects import Effect, Reply
from lavant.broker.machine.long_polls import RequestContext
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.start_time import start_time
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.jobs import TasksLeased
from lavant.broker.protocol.queues import Acknowledge, Received
from lavant.broker.queues.message import Message
from lavant.broker.queues.operations import receive as receiving
from lavant.broker.queues.operations import redrive as moves
from lavant.broker.queues.operations.deduplication import Deduplication, Key
from lavant.broker.queues.ordering.in_order import NONE, InOrder, MessageGroup
from lavant.broker.queues.queue import QueueState
from lavant.broker.storage.journal import Journal, JournalConfig, RecoveredJournal
from lavant.simulation.kernel import RunOutcome, Scenario, SimulatedDisk, Trace, run
from lavant.simulation.queues import server
from lavant.simulation.queues.server import MakeServer
from lavant.simulation.scenarios import queues
from lavant.simulation.scenarios.queues import QueueOptions

SEEDS = range(1, 9)
SEARCHED = range(1, 200)
MINUTES = 0.5
DYING = QueueOptions(swarm=False, kills_per_min=120, power_losses_per_min=0)
"""Some mistakes show only if a server dies just after its start, and then once more."""

Break = Callable[[pytest.MonkeyPatch], MakeServer | None]
"""Puts a mistake into the machines; what makes the server, if that is where it is."""


def test_a_server_without_mistakes_holds_whatever_happens() -> None:
    figures: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = run(queues.SCENARIO, seed, minutes=MINUTES)
        assert outcome.violation is None, outcome.report()
        figures.update(outcome.figures)
    # And much did happen.
    wanted = ["power losses", "kills", "sectors lost", "packets dropped", "packets duplicated", "packets held back"]
    answers = ["Sent", "Received", "Acknowledged", "VisibilityChanged", "MoveStarted", "Done", "Refused", "Peeked"]
    assert [name for name in [*wanted, *(f"answers {name}" for name in answers)] if not figures[name]] == []


def test_a_server_that_dies_again_just_after_its_start_holds() -> None:
    for seed in range(1, 13):
        outcome = run(queues.SCENARIO, seed, minutes=MINUTES, options=DYING)
        assert outcome.violation is None, outcome.report()


CLOCKS = QueueOptions(swarm=False, kills_per_min=40, power_losses_per_min=4, clock_jumps_per_min=60)


def test_clocks_that_jump_while_the_server_is_down_end_nothing_early() -> None:
    """No message expires and no lease ends before its time: `Ledger` looks at the server's time at each start, and
    the history is held against what may have expired."""
    figures: Counter[str] = Counter()
    for seed in range(1, 7):
        outcome = run(queues.SCENARIO, seed, minutes=MINUTES, options=CLOCKS)
        assert outcome.violation is None, outcome.report()
        figures.update(outcome.figures)
    verdicts = ["counted", "held", "set back", "believed"]
    assert [verdict for verdict in verdicts if not figures[f"journal time {verdict}"]] == []


# ── mistakes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class EarlyAcknowledgement(BrokerMachine):
    def __init__(self, recovered: BrokerState, *, position: int) -> None:
        super().__init__(recovered, position=position, acknowledge_early=True)


class UnrecordedAcknowledgement(BrokerMachine):
    def _acknowledge(self, request: Acknowledge, asked: RequestContext, now_ms: int) -> None:
        self._reply(asked, self.queues.handle(request, now_ms), self.position)


class HastyDelivery(BrokerMachine):
    """Does not wait until the messages that it delivers are durable."""

    def _deliver(self, asked: RequestContext, answer: Received | TasksLeased, queue: str) -> None:
        self._effects.append(Reply(asked.client, asked.number, answer, queue))


class HastyEpoch(BrokerMachine):
    """Gives out leases before it is durable which start of the server gave them."""

    def open(self, now_ms: int) -> list[Effect]:
        effects = super().open(now_ms)
        self._pending._number_durable = self.queues.number
        self._pending._sends.clear()
        return effects


class HastySend(BrokerMachine):
    def request(self, client: Any, number: int, request: Request, raw: bytes | None, now_ms: int) -> list[Effect]:
        effects = super().request(client, number, request, raw, now_ms)
        replies = [reply for _, reply, _ in self._pending._replies]
        self._pending._replies.clear()
        self._pending._hurried = 0
        return [*effects, *replies]


def lease_that_is_never_returned(patch: pytest.MonkeyPatch) -> None:
    lease = QueueState.lease

    def lease_for_good(self: QueueState, messages: list[Message], visible_ms: int, now_ms: int) -> None:
        lease(self, messages, visible_ms, now_ms)
        for message in messages:
            if message.number % 10 == 0:
                message.visible_ms = visible_ms + 3_600_000

    patch.setattr(QueueState, "lease", lease_for_good)


def lease_that_is_never_extended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueState, "extend", lambda self, message, visible_ms: None)


def group_that_is_not_blocked(patch: pytest.MonkeyPatch) -> None:
    list_ = InOrder._list

    def list_anyway(self: InOrder, group: MessageGroup, *, takes_turns: bool = True) -> None:
        in_flight = group.in_flight
        if group.first != NONE and group.first in self._messages:
            group.in_flight = 0
        list_(self, group, takes_turns=takes_turns)
        if in_flight:
            group.in_flight = in_flight
            self._groups[group.name] = group

    patch.setattr(InOrder, "_list", list_anyway)


def _vanish(message: Message, source: QueueState, target: QueueState, *, origin: str | None, now_ms: int) -> None:
    source.move_out(message)


def dead_letter_that_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(receiving, "transfer", _vanish)


def moved_message_that_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moves, "transfer", _vanish)


def names_that_no_snapshot_has(patch: pytest.MonkeyPatch) -> None:
    def nothing(self: Deduplication) -> Iterator[tuple[int, Key, int]]:
        return iter(())

    patch.setattr(Deduplication, "remembered", nothing)


def dead_letters_that_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(receiving, "_dead_letter", lambda queue, taken, dead_letters, now_ms: taken)


class _WithoutSync:
    """A disk for recovery only."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.names, self.read, self.create, self.write = disk.names, disk.read, disk.create, disk.write
        self.replace, self.remove = disk.replace, disk.remove

    def sync(self, name: str) -> None:
        pass


def recovery_that_trusts_what_it_reads(patch: pytest.MonkeyPatch) -> None:
    open_ = Journal.open

    def open_without_sync(disk: SimulatedDisk, config: JournalConfig) -> tuple[Journal, RecoveredJournal]:
        return open_(_WithoutSync(disk), config)

    patch.setattr(Journal, "open", open_without_sync)


def clock_that_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(server, "start_time", partial(start_time, is_accepted=True))


def in_the_server(server: Callable[..., BrokerMachine]) -> Break:
    return lambda patch: lambda recovered, position: server(recovered, position=position)


MISTAKES: dict[str, Break] = {
    "an acknowledgement is answered before it is durable": in_the_server(EarlyAcknowledgement),
    "an acknowledgement is not recorded": in_the_server(UnrecordedAcknowledgement),
    "a message is delivered before it is durable": in_the_server(HastyDelivery),
    "a lease is given before its epoch is durable": in_the_server(HastyEpoch),
    "a send is answered before it is durable": in_the_server(HastySend),
    "a lease is never returned": lease_that_is_never_returned,
    "a lease is never extended": lease_that_is_never_extended,
    "a group is not blocked": group_that_is_not_blocked,
    "a dead letter is lost": dead_letter_that_is_lost,
    "a dead letter stays where it is": dead_letters_that_stay,
    "a moved message is lost": moved_message_that_is_lost,
    "names of messages are not in snapshots": names_that_no_snapshot_has,
    "recovery takes for durable what it reads": recovery_that_trusts_what_it_reads,
    "the wall clock is believed at each start": clock_that_is_believed,
}


OPTIONS = {"a lease is given before its epoch is durable": DYING}


def first_violation(scenario: Scenario, options: QueueOptions) -> RunOutcome:
    """The first seed that fails; a failure of this test means that the search finds nothing."""
    outcomes = (run(scenario, seed, options=options) for seed in SEARCHED)
    return next(outcome for outcome in outcomes if outcome.violation is not None)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_search_finds_a_mistake_and_its_seed_repeats_it(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = partial(queues.build, make_server=MISTAKES[mistake](monkeypatch))
    scenario = Scenario(name="queues", summary="…", options=QueueOptions, build=build, minutes=MINUTES)
    options = OPTIONS.get(mistake, QueueOptions())
    found = first_violation(scenario, options)
    assert found.violation is not None
    assert not found.violation.traceback, found.report()
    assert run(scenario, found.seed, options=options).violation == found.violation
    assert f"lavant sim replay queues --seed {found.seed} --minutes {MINUTES}" in found.report()


# ── repetition ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_traces_are_byte_identical_in_processes_that_hash_differently(tmp_path: Path) -> None:
    for seed in (3, 4):
        check_repetition("queues", tmp_path, seed=seed, minutes=0.3)


def test_another_seed_is_another_run() -> None:
    digests = {run(queues.SCENARIO, seed, minutes=0.05, trace=Trace()).digest for seed in range(5)}
    assert len(digests) == 5

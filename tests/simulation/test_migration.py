"""Subscriptions that move between brokers in virtual time: it holds, and mistakes that are put into it are found."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.simulation.mistakes import Break, check_found, check_holds

from lavant.broker.federation.machine import FederationMachine
from lavant.broker.federation.migration import snapshot
from lavant.broker.federation.migration.flush import PathFlushes
from lavant.broker.federation.migration.machine import OFFERED, PREPARED, SubscriptionMigrations
from lavant.broker.federation.migration.state import Migrations
from lavant.broker.federation.migration.values import OriginNumbers
from lavant.broker.protocol.federation import OpenArrival
from lavant.broker.queues.operations.transfer import QueueTransfers
from lavant.simulation.scenarios import migration
from lavant.simulation.scenarios.migration import MigrationOptions

MINUTES = 0.1
DYING = MigrationOptions(
    swarm=False,
    brokers=4,
    gap_ms=25.0,
    kills_per_min=60.0,
    power_losses_per_min=30.0,
    kills_per_step=0.1,
    loss=0.02,
)
"""Many crashes, so that what is only in memory is lost at every step."""
MOVING = replace(DYING, migrations_per_min=1_200.0)
"""And many moves, so that answers get lost."""
BUSY = MigrationOptions(
    swarm=False,
    brokers=4,
    gap_ms=6.0,
    migrations_per_min=600.0,
    consumes_per_min=1_200.0,
    kills_per_min=0.0,
    power_losses_per_min=0.0,
    kills_per_step=0.0,
)
"""Much is published, received and moved."""


def test_subscriptions_move_whatever_happens() -> None:
    figures = check_holds(migration.SCENARIO, range(1, 21), minutes=MINUTES, options=MigrationOptions(brokers=4))
    wanted = ["published", "subscribed", "moved", "acknowledged", "power losses", "kills", "packets dropped"]
    assert [name for name in wanted if not figures[name]] == []


@pytest.mark.soak
@pytest.mark.parametrize("options", [MigrationOptions(), DYING, BUSY], ids=["swarm", "dying", "busy"])
def test_subscriptions_move_in_many_worlds(options: MigrationOptions) -> None:
    check_holds(migration.SCENARIO, range(1, 201), minutes=0.2, options=options)


# ── mistakes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def flushes_nothing_before(step: str) -> Break:
    """The flush after a step does not wait for publications."""

    def put_in(patch: pytest.MonkeyPatch) -> None:
        has_received = PathFlushes._has_received
        patch.setattr(PathFlushes, "_has_received", lambda self, flush: flush.step == step or has_received(self, flush))

    return put_in


def prepares_without_a_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SubscriptionMigrations, "_offered", SubscriptionMigrations._prepare)


def hands_over_before_the_route(patch: pytest.MonkeyPatch) -> None:
    go_on = SubscriptionMigrations._go_on

    def early(migrations: SubscriptionMigrations, migration: str) -> None:
        go_on(migrations, migration)
        departure = migrations.state.departures.get(migration)
        if departure is not None and not departure.is_handed_over:
            migrations._hand_over(departure)

    patch.setattr(SubscriptionMigrations, "_go_on", early)


def opens_without_notes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OriginNumbers, "pairs", lambda self: set())


def opens_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    def open_now(migrations: SubscriptionMigrations, source: str, frame: Any) -> None:
        if frame.migration in migrations.state.arrivals:
            migrations._driver(frame.migration).is_flushed = True
        opened(migrations, source, frame)

    opened = SubscriptionMigrations._open
    patch.setattr(SubscriptionMigrations, "_open", open_now)


def takes_messages_again(patch: pytest.MonkeyPatch) -> None:
    take = Migrations._PLANNERS[migration_command("TakeMessages")]

    def again(migrations: Migrations, request: Any) -> Any:
        if request.migration in migrations.arrivals:
            migrations.arrivals[request.migration].followed.clear()
        return take(migrations, request)

    patch.setitem(Migrations._PLANNERS, migration_command("TakeMessages"), again)


def keeps_what_has_followed(patch: pytest.MonkeyPatch) -> None:
    """Messages that followed are not deleted at the old broker, which ends nevertheless when its queue is empty."""
    patch.setattr(QueueTransfers, "drop", lambda self, queue, numbers: None)


def forgets_before_it_is_taken(patch: pytest.MonkeyPatch) -> None:
    send = SubscriptionMigrations._send

    def forget(migrations: SubscriptionMigrations, target: str, content: Any) -> None:
        send(migrations, target, content)
        if type(content).__name__ == "MigrationMessages":
            departure = migrations.state.departures[content.migration]
            numbers = [each.number for each in content.messages]
            migrations._machine.server.queues.transfers.drop(departure.queue, numbers)

    patch.setattr(SubscriptionMigrations, "_send", forget)


def leaves_messages_in_flight_behind(patch: pytest.MonkeyPatch) -> None:
    opened = Migrations._PLANNERS[OpenArrival]
    end = SubscriptionMigrations._take_as_old

    def at_once(migrations: SubscriptionMigrations, departure: Any, content: Any) -> None:
        end(migrations, departure, content)
        if type(content).__name__ == "MigrationOpened" and departure.migration in migrations.state.departures:
            migrations._end(departure)

    assert opened is not None
    patch.setattr(SubscriptionMigrations, "_take_as_old", at_once)


def delivers_before_it_is_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueTransfers, "is_arriving", lambda self, queue: False)
    patch.setattr(QueueTransfers, "arrange", lambda self, queue, numbers, above: None)


def goes_on_delivering_after_it_is_handed_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueTransfers, "detach", lambda self, queue: None)
    patch.setattr("lavant.broker.subscriptions.registry.Subscriptions.hand_over", lambda self, state: None)


def snapshots_have_no_notes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OriginNumbers, "columns", lambda self: [])


def snapshots_have_no_moves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot, "_parts_of", lambda state: iter(()))


def acknowledges_what_has_followed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueTransfers, "has_left", lambda self, queue: False)


def sends_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    """Steps are told to the other side before they are durable."""
    record = FederationMachine.record

    def early(machine: FederationMachine, command: Any, then: Any = None, **options: Any) -> None:
        record(machine, command, None, **options)
        if then is not None:
            then(None)

    patch.setattr(FederationMachine, "record", early)


def migration_command(name: str) -> type:
    return next(each for each in Migrations._PLANNERS if each.__name__ == name)


MISTAKES: dict[str, tuple[Break, MigrationOptions]] = {
    "the new broker prepares before the path was flushed": (prepares_without_a_flush, BUSY),
    "the first flush does not wait for publications": (flushes_nothing_before(OFFERED), BUSY),
    "the second flush does not wait for publications": (flushes_nothing_before(PREPARED), BUSY),
    "it is handed over before the route is known": (hands_over_before_the_route, BUSY),
    "what the old queue got is not deleted from the new one": (opens_without_notes, BUSY),
    "the new queue is opened before the third flush": (opens_before_the_flush, BUSY),
    "messages are taken again after a repetition": (takes_messages_again, MOVING),
    "messages that followed stay": (keeps_what_has_followed, BUSY),
    "messages are forgotten before the new broker has them": (forgets_before_it_is_taken, DYING),
    "messages in flight are left behind": (leaves_messages_in_flight_behind, BUSY),
    "a queue delivers before it is open": (delivers_before_it_is_open, BUSY),
    "the old queue gets more after it was handed over": (goes_on_delivering_after_it_is_handed_over, BUSY),
    "snapshots have no notes": (snapshots_have_no_notes, DYING),
    "snapshots have no moves": (snapshots_have_no_moves, DYING),
    "what has followed can be acknowledged at the old broker": (acknowledges_what_has_followed, BUSY),
    "steps are told before they are durable": (sends_what_is_not_durable, DYING),
}


@pytest.mark.soak
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_search_finds_a_mistake(mistake: str) -> None:
    put_in, options = MISTAKES[mistake]
    check_found(migration.SCENARIO, put_in, minutes=0.2, options=options)

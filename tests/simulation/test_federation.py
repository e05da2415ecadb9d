"""A federation of brokers in virtual time: it holds, and mistakes that are put into it are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.simulation.mistakes import Break, check_found, check_holds
from tests.simulation.repetition import check_repetition

from lavant.broker.federation import snapshot
from lavant.broker.federation.link_queue import LinkQueue
from lavant.broker.federation.machine import FederationMachine
from lavant.broker.federation.numbers import ReceivedNumbers
from lavant.broker.federation.relays import LinkRelays
from lavant.broker.federation.routes.router import LOCAL, Outgoing, Router, RoutesChange
from lavant.broker.federation.session import LinkSession
from lavant.broker.federation.state import FederationState
from lavant.broker.protocol.federation import AdvertisedRoute, RouteEntry, SubscribedRoute
from lavant.broker.protocol.queues import Refused
from lavant.simulation.scenarios import federation
from lavant.simulation.scenarios.federation import FederationOptions

MINUTES = 0.1
SMALL = FederationOptions(brokers=5, gap_ms=80.0)
DYING = FederationOptions(
    swarm=False, brokers=4, gap_ms=25.0, kills_per_min=60.0, power_losses_per_min=30.0, moves_per_min=0.0, loss=0.02
)
"""Many crashes, so that what is only in memory is lost."""
FULL = FederationOptions(
    swarm=False, brokers=4, gap_ms=25.0, full_disks_per_min=60.0, kills_per_min=0.0, power_losses_per_min=0.0
)
BUSY = FederationOptions(
    swarm=False,
    brokers=4,
    gap_ms=6.0,
    **dict.fromkeys([name for name in FederationOptions.__struct_fields__ if name.endswith("_per_min")], 0.0),
    **dict.fromkeys(["duplication", "reordering"], 0.0),
    loss=0.2,
)
"""No broker fails, and much is published while routes change. Lost packets are repeated, so a change takes longer."""


def test_a_federation_without_mistakes_holds_whatever_happens() -> None:
    figures = check_holds(federation.SCENARIO, range(1, 21), minutes=MINUTES, options=SMALL)
    wanted = ["published", "subscribed", "unsubscribed", "links moved", "power losses", "kills", "packets dropped"]
    assert [name for name in wanted if not figures[name]] == []


@pytest.mark.soak
def test_large_federations_hold_too() -> None:
    for seed in range(1, 201):
        options = FederationOptions(brokers=20 if seed % 10 == 0 else 8)
        check_holds(federation.SCENARIO, [seed], minutes=0.25, options=options)


@pytest.mark.soak
def test_federations_whose_brokers_die_all_the_time_hold() -> None:
    check_holds(federation.SCENARIO, range(1, 41), minutes=0.25, options=DYING)


def test_a_seed_gives_the_same_trace_in_processes_that_hash_differently(tmp_path: Any) -> None:
    check_repetition("federation", tmp_path, seed=3, minutes=0.05)


# ── mistakes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def uncovers_afterwards(patch: pytest.MonkeyPatch) -> None:
    def parts(change: RoutesChange) -> Iterator[RoutesChange]:
        if change.removed:
            yield RoutesChange([], change.removed, [])
        yield RoutesChange(change.added, [], change.buckets)

    patch.setattr(RoutesChange, "parts", parts)


def mends_all_but_advertisements(patch: pytest.MonkeyPatch) -> None:
    mend = Outgoing.mend

    def without(outgoing: Outgoing, digests: bytes) -> Iterator[RoutesChange]:
        for change in mend(outgoing, digests):
            added: list[RouteEntry] = [entry for entry in change.added if not isinstance(entry, AdvertisedRoute)]
            yield RoutesChange(added, change.removed, [])

    patch.setattr(Outgoing, "mend", without)


def does_not_record_numbers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FederationState, "_check_received", lambda self, routed, columns: [])


def acknowledges_early(patch: pytest.MonkeyPatch) -> None:
    take = LinkRelays.take

    def early(relays: LinkRelays, session: LinkSession, batch: Any) -> None:
        take(relays, session, batch)
        relays._received[session.link].add(range(batch.first, batch.last + 1))

    patch.setattr(LinkRelays, "take", early)


def sends_early(patch: pytest.MonkeyPatch) -> None:
    def routed(machine: FederationMachine) -> None:
        for neighbour in machine.state.neighbours.values():
            machine.sendable[neighbour.link] = neighbour.queue.number
        for session in machine.sessions.values():
            if session.is_up:
                machine._pump(session)

    patch.setattr(FederationMachine, "_routed", routed)


def forgets_queues_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LinkQueue, "batches", lambda self: [])


def drops_what_is_refused(patch: pytest.MonkeyPatch) -> None:
    answered = LinkRelays.answered

    def accept(relays: LinkRelays, connection: Any, number: int, entries: list[str | Refused]) -> None:
        answered(relays, connection, number, ["" if isinstance(entry, Refused) else entry for entry in entries])

    patch.setattr(LinkRelays, "answered", accept)


def never_sends_again(patch: pytest.MonkeyPatch) -> None:
    opened = FederationMachine.opened

    def at_the_end(machine: FederationMachine, session: LinkSession) -> None:
        opened(machine, session)
        session.sent = machine.state.neighbours[session.neighbour].queue.number

    patch.setattr(FederationMachine, "opened", at_the_end)


def claims_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    def durable(relays: LinkRelays, link: str) -> int:
        neighbours = relays._machine.state.neighbours.values()
        return next(each.received.floor for each in neighbours if each.link == link)

    patch.setattr(LinkRelays, "durable", durable)


def passes_no_subscription_on(patch: pytest.MonkeyPatch) -> None:
    add, remove = Router.add, Router.remove

    def only_local(method: Any) -> Any:
        def call(router: Router, source: str, entry: Any) -> None:
            if source == LOCAL or not isinstance(entry, SubscribedRoute):
                method(router, source, entry)

        return call

    patch.setattr(Router, "add", only_local(add))
    patch.setattr(Router, "remove", only_local(remove))


def never_retracts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outgoing, "retract", lambda self, entry: None)


def mends_one_way(patch: pytest.MonkeyPatch) -> None:
    opened = FederationMachine.opened

    def one_way(machine: FederationMachine, session: LinkSession) -> None:
        opened(machine, session)
        if not session.is_dialled and not session.is_new:
            session.changes.clear()

    patch.setattr(FederationMachine, "opened", one_way)


def mends_by_adding_only(patch: pytest.MonkeyPatch) -> None:
    mend = Outgoing.mend

    def adding(outgoing: Outgoing, digests: bytes) -> Iterator[RoutesChange]:
        return (msgspec.structs.replace(change, buckets=[]) for change in mend(outgoing, digests))

    patch.setattr(Outgoing, "mend", adding)


def forgets_numbers_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot, "ReceivedNumbers", lambda floor, above: ReceivedNumbers())


def takes_any_acknowledgement_back(patch: pytest.MonkeyPatch) -> None:
    """The queue of a link is emptied by what was sent, not by what was confirmed."""
    pump = FederationMachine._pump

    def forget(machine: FederationMachine, session: LinkSession) -> None:
        pump(machine, session)
        if session.sent > session.acknowledged:
            machine._acknowledged(session, session.sent)

    patch.setattr(FederationMachine, "_pump", forget)


MISTAKES: dict[str, tuple[Break, FederationOptions]] = {
    "what an unsubscription uncovers is told after it": (uncovers_afterwards, BUSY),
    "digests do not mend advertisements": (mends_all_but_advertisements, SMALL),
    "the number is not recorded with the delivery": (does_not_record_numbers, DYING),
    "a publication is confirmed before it is durable": (acknowledges_early, DYING),
    "a publication is passed on before it is durable": (sends_early, DYING),
    "a snapshot has no queues of links": (forgets_queues_in_snapshots, DYING),
    "a publication that is refused is confirmed": (drops_what_is_refused, FULL),
    "nothing is sent again after a reconnect": (never_sends_again, DYING),
    "numbers that are not durable are told to the other side": (claims_what_is_not_durable, DYING),
    "subscriptions of neighbours are not passed on": (passes_no_subscription_on, SMALL),
    "unsubscriptions are not told": (never_retracts, SMALL),
    "routes are mended one way": (mends_one_way, DYING),
    "routes are mended by additions only": (mends_by_adding_only, DYING),
    "a snapshot has no numbers that were received": (forgets_numbers_in_snapshots, DYING),
    "a queue is emptied by what was sent": (takes_any_acknowledgement_back, DYING),
}


@pytest.mark.soak
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_search_finds_a_mistake(mistake: str) -> None:
    put_in, options = MISTAKES[mistake]
    check_found(federation.SCENARIO, put_in, minutes=0.2, options=options)

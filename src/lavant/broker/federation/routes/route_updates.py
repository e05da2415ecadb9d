"""Changes of the routes that neighbours tell: checked, recorded, and searched for cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lavant.broker.federation.frames import RoutesApplied, RoutesUpdate
from lavant.broker.federation.opening import RefusedLink
from lavant.broker.federation.routes.encrypted_shapes import EncryptedShapes
from lavant.broker.federation.routes.members import check_member, is_loop, names_on, opened_ms, youngest_link
from lavant.broker.federation.session import LinkSession
from lavant.broker.protocol.federation import BrokerMember, LearnRoutes

if TYPE_CHECKING:
    from lavant.broker.federation.machine import FederationMachine


class RouteUpdates:
    """Applies the updates that come to one broker."""

    def __init__(self, machine: FederationMachine, shapes: EncryptedShapes) -> None:
        self._machine = machine
        self._shapes = shapes

    def take(self, session: LinkSession, update: RoutesUpdate) -> None:
        machine = self._machine
        if update.number != session.updates_received + 1:
            raise RefusedLink("invalid", f"update {update.number} came after {session.updates_received}")
        session.updates_received = update.number
        self._shapes.check(update.added)
        neighbour = machine.state.find(session.neighbour, session.link)
        members = [each for each in update.added if isinstance(each, BrokerMember)]
        for each in members:
            check_member(each, neighbour.identity)

        def applied(answer: object) -> None:
            if session.is_up:
                machine.send(session, RoutesApplied(update.number))

        command = LearnRoutes(session.neighbour, session.link, update.added, update.removed, update.buckets)
        machine.record(command, applied)
        for each in members:
            if is_loop(each, machine.own):
                self._break(session.link, each)

    def _break(self, link: str, member: BrokerMember) -> None:
        """Two joins at the same time have closed a cycle: the brokers of its youngest link remove it."""
        machine = self._machine
        pair = youngest_link(member, opened_ms(link))
        for each in list(machine.state.neighbours.values()):
            if {machine.own.identity, each.identity} == set(pair):
                names = [*names_on(member.path, machine.own, machine.members_behind.values()), machine.own.name]
                machine.remove_neighbour(each.name, f"it closes the cycle {' - '.join(names)}")

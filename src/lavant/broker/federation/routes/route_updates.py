"""Changes of the routes that neighbours tell: checked, recorded, and searched for cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lavant.broker.federation.frames import RoutesApplied, RoutesUpdate
from lavant.broker.federation.opening import RefusedLink
from lavant.broker.federation.routes.encrypted_shapes import EncryptedShapes
from lavant.broker.federation.routes.members import check_member, is_loop, names_on, opened_ms, youngest_link
from lavant.broker.federation.routes.tables import bucket_of, key_of
from lavant.broker.federation.session import LinkSession
from lavant.broker.protocol.federation import BrokerMember, LearnRoutes, RouteEntry, SubscribedRoute

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
        neighbour = machine.state.find(session.neighbour, session.link)
        unfit = self._shapes.unfit(update.added)
        members = [each for each in update.added if isinstance(each, BrokerMember)]
        for each in members:
            check_member(each, neighbour.identity)

        def applied(answer: object) -> None:
            if session.is_up:
                machine.send(session, RoutesApplied(update.number))

        added = self._put_aside(session, update, unfit) if unfit or session.unfit else update.added
        command = LearnRoutes(session.neighbour, session.link, added, update.removed, update.buckets)
        machine.record(command, applied)
        for each in members:
            if is_loop(each, machine.own):
                self._break(session.link, each)

    def retry(self, session: LinkSession) -> None:
        """Learn what did not fit, if it fits now."""
        if not session.unfit or session.unfit_at == self._shapes.ended:
            return
        session.unfit_at = self._shapes.ended
        unfit = {key_of(each) for each in self._shapes.unfit(session.unfit.values())}
        fit = [entry for key, entry in session.unfit.items() if key not in unfit]
        session.unfit = {key: entry for key, entry in session.unfit.items() if key in unfit}
        if fit:
            self._machine.record(LearnRoutes(session.neighbour, session.link, list(fit)))

    def _put_aside(self, session: LinkSession, update: RoutesUpdate, unfit: list[SubscribedRoute]) -> list[RouteEntry]:
        """The routes that fit. The others concern one namespace, so the link goes on without them; they are tried again
        when those that are in their way end."""
        gone = {*update.removed, *(key for key in session.unfit if bucket_of(key) in update.buckets)}
        before = session.unfit
        session.unfit = {key: entry for key, entry in before.items() if key not in gone}
        session.unfit |= {key_of(each): each for each in unfit}
        session.unfit_at = self._shapes.ended
        routes_max = self._machine.config.limits.routes_max
        if len(session.unfit) > routes_max:
            raise RefusedLink(
                "full", f"over {routes_max} encrypted subscriptions do not fit beside those of this broker"
            )
        for namespace in dict.fromkeys(each.namespace for key, each in session.unfit.items() if key not in before):
            self._machine.notice(
                f"encrypted subscriptions of {session.neighbour!r} in namespace {namespace!r} get nothing from here: "
                "those that this broker knows have another number of attributes or tests; use one schema and key for "
                "all, or another namespace",
                is_warning=True,
            )
        return [entry for entry in update.added if key_of(entry) not in session.unfit]

    def _break(self, link: str, member: BrokerMember) -> None:
        """Two joins at the same time have closed a cycle: the brokers of its youngest link remove it."""
        machine = self._machine
        pair = youngest_link(member, opened_ms(link))
        for each in list(machine.state.neighbours.values()):
            if {machine.own.identity, each.identity} == set(pair):
                names = [*names_on(member.path, machine.own, machine.members_behind.values()), machine.own.name]
                machine.remove_neighbour(each.name, f"it closes the cycle {' - '.join(names)}")

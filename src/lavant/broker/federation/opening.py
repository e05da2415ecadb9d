"""The opening of a link: who may join, what both sides know of the link, and whether it would close a cycle.

    dialler    HELLO ──hello──► (DISK: the neighbour is added) ──► OPENED ──opened──► UP
    acceptor   HELLO ──hello──► OPEN ──open──► (DISK: the neighbour is added) ──► UP

Both sides remember a link by its id. If they do not agree, one of them has removed the other, or has lost its data: the
side that knows an older link drops it, with what waited, and a new one begins.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lavant.broker.federation.frames import (
    LINK_PROTOCOL,
    LinkHello,
    LinkOpen,
    LinkOpened,
    LinkRefused,
)
from lavant.broker.federation.routes.members import cycle_of, link_id, side_of, twins_of
from lavant.broker.federation.routes.tables import DIGESTS_BYTES, NO_ROUTES
from lavant.broker.federation.session import LinkSession, LinkStage
from lavant.broker.federation.state import Neighbour
from lavant.broker.protocol.federation import AddNeighbour, BrokerMember

if TYPE_CHECKING:
    from lavant.broker.federation.machine import FederationMachine

CLOCKS_APART_MS_MAX = 60_000
NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")
"""The name of a broker."""


CYCLE = "cycle"
"""The code of refusals of links that would close one."""
REMOVED = "removed"
"""The code of refusals by a broker that has removed this one, or the link that this one remembers."""

_TWO_BROKERS = (
    "there is another broker named {0!r} in the federation, with another data directory; start one of them with "
    "another --name, or remove the one that is gone"
)


class RefusedLink(Exception):
    """The link is refused; `reason` is for both sides."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class LinkOpening:
    """Opens the links of a machine."""

    def __init__(self, machine: FederationMachine) -> None:
        self._machine = machine

    def greet(self, session: LinkSession) -> None:
        """The dialler speaks first."""
        self._machine.send(session, self._hello("", [], 0, NO_ROUTES))

    def handle(self, session: LinkSession, frame: LinkHello | LinkOpen | LinkOpened | LinkRefused) -> None:
        match frame, session.stage:
            case LinkHello(), LinkStage.HELLO:
                self._greeted(session, frame)
            case LinkOpen(), LinkStage.OPEN:
                self._open(session, frame)
            case LinkOpened(), LinkStage.OPENED:
                self._machine.opened(session)
            case LinkRefused(), _:
                self._refused(session, frame)
            case _:
                raise RefusedLink("invalid", f"a {type(frame).__name__} came when the link waited for {session.stage}")

    # ── hello ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _greeted(self, session: LinkSession, hello: LinkHello) -> None:
        machine = self._machine
        known = self._check(hello)
        self._check_twins(session, hello)
        session.peer = hello
        if abs(hello.now_ms - machine.now_ms) > CLOCKS_APART_MS_MAX:
            machine.notice(
                f"the clock of {hello.name!r} is {(hello.now_ms - machine.now_ms) / 1000:+.0f} s apart; no publication "
                "depends on it, but times in logs differ: set one of them",
                is_warning=True,
            )
        if session.is_dialled:
            self._answer(session, hello, known)
            return
        if hello.identity in machine.state.removed:
            raise RefusedLink(
                REMOVED,
                f"{machine.own.name!r} has removed {hello.name!r}; to let it join again, start {machine.own.name!r} "
                f"with --join to {hello.name!r}",
            )
        link, name = ("", "") if known is None else (known.link, known.name)
        received, digests = self._held(known)
        session.taken = received
        session.stage = LinkStage.OPEN
        machine.send(session, self._hello(link, self._side(name), received, digests))

    def _answer(self, session: LinkSession, hello: LinkHello, known: Neighbour | None) -> None:
        """The dialler continues the link that both know, or begins a new one."""
        machine = self._machine
        session.neighbour = hello.name
        if known is not None and known.link == hello.link:
            received, digests = self._held(known)
            session.link, session.taken = known.link, received
            session.theirs = (hello.received, hello.digests)
            session.stage = LinkStage.OPENED
            machine.send(session, LinkOpen(known.link, False, [], received, digests))
            return
        if known is not None:
            machine.remove_neighbour(known.name, "it does not know this link")
        self._check_members(hello.members)
        session.is_new = True
        session.link = link_id(machine.own, machine.state.changes, machine.now_ms)
        session.stage = LinkStage.DISK

        def added(answer: object) -> None:
            if session.stage is LinkStage.DISK:
                session.stage = LinkStage.OPENED
                machine.send(session, LinkOpen(session.link, True, self._side(hello.name), 0, NO_ROUTES))

        machine.record(AddNeighbour(hello.name, hello.identity, session.link), added)

    # ── open ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, session: LinkSession, opening: LinkOpen) -> None:
        machine, hello = self._machine, session.peer
        assert hello is not None
        known = self._check(hello)
        self._check_older(session, hello)
        if len(opening.digests) != DIGESTS_BYTES:
            raise RefusedLink("invalid", f"digests have {DIGESTS_BYTES} bytes, got {len(opening.digests)}")
        session.neighbour, session.link = hello.name, opening.link
        session.theirs = (opening.received, opening.digests)
        if not opening.is_new:
            if known is None or known.link != opening.link:
                raise RefusedLink(REMOVED, f"{machine.own.name!r} does not know this link; it begins anew")
            machine.opened(session)
            return
        if known is not None:
            machine.remove_neighbour(known.name, "it begins a new link")
        self._check_members(opening.members)
        session.taken = 0
        session.stage = LinkStage.DISK

        def added(answer: object) -> None:
            if session.stage is LinkStage.DISK:
                machine.attempt(session, lambda: machine.opened(session))  # it may have been removed meanwhile

        machine.record(AddNeighbour(hello.name, hello.identity, opening.link), added)

    def _refused(self, session: LinkSession, refused: LinkRefused) -> None:
        machine = self._machine
        known = machine.state.neighbours.get(session.neighbour)
        if session.is_new and not session.is_up and known is not None and known.link == session.link:
            machine.remove_neighbour(known.name, f"it refuses this broker: {refused.reason}")
        elif refused.code in (CYCLE, REMOVED):
            # Only a new link can close a cycle, so the other side has removed the one that this broker remembers.
            known = self._neighbour_with(refused.broker)
            if known is not None and machine.session_of(known.link) is None:
                machine.remove_neighbour(known.name, "it has removed this broker")
        machine.close(session, refused.reason)

    # ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _check(self, hello: LinkHello) -> Neighbour | None:
        """The neighbour that says hello, if it is one already. Raises if it may not be."""
        own, state = self._machine.own, self._machine.state
        if hello.protocol != LINK_PROTOCOL:
            raise RefusedLink(
                "protocol",
                f"{own.name!r} speaks version {LINK_PROTOCOL} of the protocol between brokers, {hello.name[:80]!r} "
                f"version {hello.protocol}; start both with the same version of Lavant",
            )
        if NAME.fullmatch(hello.name) is None or not hello.identity or len(hello.digests) != DIGESTS_BYTES:
            raise RefusedLink("invalid", f"the hello of {hello.name[:80]!r} is malformed; is this a broker of Lavant?")
        if hello.identity == own.identity:
            raise RefusedLink(
                "self", f"{hello.name!r} has the data directory of {own.name!r}: a broker cannot join itself"
            )
        by_name = state.neighbours.get(hello.name)
        by_identity = self._neighbour_with(hello.identity)
        behind = [each for known in self._machine.members_behind.values() for each in known.values()]
        others = {each.identity for each in (own, *behind) if each.name == hello.name} - {hello.identity}
        if (by_name is not None and by_name is not by_identity) or others:
            raise RefusedLink("name", _TWO_BROKERS.format(hello.name))
        if by_identity is not None and by_identity.name != hello.name:
            raise RefusedLink(
                "name",
                f"{own.name!r} knows {hello.name!r} as {by_identity.name!r}; start it with --name {by_identity.name}, "
                "or remove the neighbour",
            )
        return by_identity

    def _check_twins(self, session: LinkSession, hello: LinkHello) -> None:
        """Two connections to one broker: that of the broker with the smaller identity stays. If one broker made both,
        it knows whether the older one works; the other one waits for what it does with the newer one."""
        own = self._machine.own
        for other in self._twins(session, hello.identity):
            if session.is_dialled and other.is_dialled:
                raise RefusedLink(
                    "twice", f"{own.name!r} has a link to {hello.name!r} by another --join; remove one of them"
                )
            if session.is_dialled != other.is_dialled:
                if session.is_dialled != (own.identity < hello.identity):
                    raise RefusedLink("linked", f"{own.name!r} and {hello.name!r} have a connection already")
                self._replace(other, hello)

    def _check_older(self, session: LinkSession, hello: LinkHello) -> None:
        """The dialler does not use its older connections any more, but frames may have come over them since this side
        said what it holds: the dialler asks once more."""
        twins = self._twins(session, hello.identity)
        for other in twins:
            self._replace(other, hello)
        if twins:
            raise RefusedLink("linked", f"{self._machine.own.name!r} had an older connection; it is closed now")

    def _twins(self, session: LinkSession, identity: str) -> list[LinkSession]:
        """Other connections to the same broker."""
        sessions = self._machine.sessions.values()
        peers = [each for each in sessions if each.peer is not None and each.peer.identity == identity]
        return [each for each in peers if each is not session and each.stage is not LinkStage.CLOSED]

    def _replace(self, older: LinkSession, hello: LinkHello) -> None:
        reason = f"a newer connection between {self._machine.own.name!r} and {hello.name!r} is used"
        self._machine.refuse(older, "linked", reason)

    def _check_members(self, theirs: list[BrokerMember]) -> None:
        """Raises unless a new link to these brokers keeps the federation a tree of brokers with names of their own."""
        mine = self._side("")
        twins = twins_of(mine, theirs)
        if twins:
            raise RefusedLink("name", _TWO_BROKERS.format(twins[0]))
        cycle = cycle_of(mine, theirs)
        if cycle is not None:
            raise RefusedLink(
                CYCLE,
                f"this link would close the cycle {' - '.join(cycle)}; the brokers of a federation form a tree: remove "
                "one of these links first",
            )

    # ── shared ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _hello(self, link: str, members: list[BrokerMember], received: int, digests: bytes) -> LinkHello:
        own = self._machine.own
        return LinkHello(
            LINK_PROTOCOL,
            own.name,
            own.identity,
            own.epoch,
            own.changes,
            link,
            members,
            received,
            digests,
            self._machine.now_ms,
            self._machine.config.role,
        )

    def _neighbour_with(self, identity: str) -> Neighbour | None:
        return next((each for each in self._machine.state.neighbours.values() if each.identity == identity), None)

    def _side(self, but: str) -> list[BrokerMember]:
        """The brokers on this side of the link to a neighbour."""
        behind = {name: members.values() for name, members in self._machine.members_behind.items()}
        return side_of(self._machine.own, behind, but)

    def _held(self, known: Neighbour | None) -> tuple[int, bytes]:
        """What this side holds of the other one."""
        if known is None:
            return 0, NO_ROUTES
        return self._machine.relays.durable(known.link), known.routes.digests()

"""What operators see of a broker's links: their state, the brokers behind them, and where a publication goes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lavant.broker.federation.machine import FederationMachine
from lavant.broker.federation.session import LinkSession
from lavant.broker.federation.state import Neighbour
from lavant.broker.filters import Filter
from lavant.broker.filters.limits import NO_LIMITS
from lavant.broker.protocol.federation import ANY_NAMESPACE, AdvertisedRoute, BrokerMember, SubscribedRoute
from lavant.broker.protocol.subscriptions import EncryptedFilter, SubscriptionState
from lavant.broker.subscriptions.parsing import PLAIN, ParsedPublication, accept
from lavant.core.errors import InvalidValue
from lavant.core.publications.attributes import AttributeValue

UP, DOWN, STALLED, OPENING = "up", "down", "stalled", "opening"


class LinkView(msgspec.Struct, frozen=True, kw_only=True):
    """A link as operators see it."""

    name: str
    identity: str
    epoch: int
    role: str
    state: str
    """`up`, `down`, `opening`, or `stalled` if the last probe is overdue."""
    is_dialled: bool
    since_ms: int | None
    rtt_ms: int | None
    """Of the last probe."""
    blocked: str
    """Why publications are held back, here or at the neighbour."""
    waiting: int
    waiting_bytes: int
    oldest_ms: int | None
    forwarded: int
    received: int
    hops_max: int
    """The most links that a publication from there has crossed."""
    advertisements: int
    """Held of the neighbour, like the next one."""
    subscriptions: int
    told: int
    """Routes that the neighbour should hold."""
    covered: int
    """Routes that it need not hold, because others cover them."""


class RouteStep(msgspec.Struct, frozen=True):
    """Whether a publication goes to a neighbour, and why."""

    neighbour: str
    is_forwarded: bool
    reason: str


class TraceVerdict(msgspec.Struct, frozen=True):
    """What a broker would do with a publication."""

    subscriptions: list[str]
    """Names of local subscriptions that match."""
    links: list[RouteStep]
    refusal: str | None = None
    """Why it would not take the publication from a client."""


def links_of(machine: FederationMachine) -> list[LinkView]:
    return [_view(machine, neighbour) for neighbour in machine.state.neighbours.values()]


def members_of(machine: FederationMachine) -> list[BrokerMember]:
    """All other brokers, with the paths from them to the neighbour that tells of them."""
    return [member for behind in machine.members_behind.values() for member in behind.values()]


def tracer(
    machine: FederationMachine, namespace: str, publication: bytes, source: str = ""
) -> Callable[[], TraceVerdict]:
    """Tells where a plain publication would go that was published here, or came from the neighbour `source`.

    The result takes long with many subscriptions, since it parses their filters. It may be called in any thread: it
    uses the subscriptions of this moment.
    """
    [parsed] = accept([publication], ["trace"], machine.now_ms)
    if not isinstance(parsed, ParsedPublication):
        raise InvalidValue(parsed.reason)
    if parsed.scheme != PLAIN:
        raise InvalidValue("an encrypted publication cannot be traced: brokers see ciphertext only; trace a plain one")
    registry = machine.server.broker.subscriptions
    own = [each for each in registry if each.namespace == namespace]
    behind = {
        neighbour.name: (
            [each for each in neighbour.subscriptions.values() if each.namespace == namespace],
            _advertised_to(machine, neighbour, namespace),
        )
        for neighbour in machine.state.neighbours.values()
        if neighbour.name != source
    }
    is_refused = not source and machine.config.requires_advertisements
    is_refused = is_refused and not registry.is_advertised(namespace, parsed.content)

    def verdict() -> TraceVerdict:
        if is_refused:
            return TraceVerdict([], [], "it would be refused: no advertisement here matches, and this broker wants one")
        return TraceVerdict(
            [each.name for each in own if _matches(each.filter, parsed.content)],
            [_step(name, known, told, parsed.content) for name, (known, told) in behind.items()],
        )

    return verdict


def _advertised_to(machine: FederationMachine, neighbour: Neighbour, namespace: str) -> list[str]:
    """What is advertised to a neighbour: it tells only subscriptions that intersect that."""
    return [
        each.filter
        for each in machine.router.outgoing[neighbour.name].table
        if isinstance(each, AdvertisedRoute) and each.namespace in (namespace, ANY_NAMESPACE)
    ]


def _matches(filter: str | EncryptedFilter, attributes: dict[str, AttributeValue]) -> bool:
    return isinstance(filter, str) and Filter.parse(filter, NO_LIMITS).matches(attributes)


def _step(
    neighbour: str, known: list[SubscriptionState], told: list[str], attributes: dict[str, AttributeValue]
) -> RouteStep:
    for state in known:
        if _matches(state.filter, attributes):
            return RouteStep(neighbour, True, f"subscription behind it: {state.filter}")
    if not any(_matches(filter, attributes) for filter in told):
        why = "no advertisement on this side of the link matches, so it tells no subscriptions for it"
        return RouteStep(neighbour, False, why)
    if not known:
        return RouteStep(neighbour, False, "there is no subscription behind it in this namespace")
    if len(known) == 1:
        return RouteStep(neighbour, False, "the only subscription behind it does not match")
    return RouteStep(neighbour, False, f"none of the {len(known)} subscriptions behind it matches")


def _view(machine: FederationMachine, neighbour: Neighbour) -> LinkView:
    session = next((each for each in machine.sessions.values() if each.link == neighbour.link), None)
    queue, outgoing = neighbour.queue, machine.router.outgoing[neighbour.name]
    member = next(
        (each for each in machine.members_behind[neighbour.name].values() if each.identity == neighbour.identity), None
    )
    peer = None if session is None else session.peer
    kinds = neighbour.routes.kinds
    return LinkView(
        name=neighbour.name,
        identity=neighbour.identity,
        epoch=0 if member is None else member.epoch,
        role="" if peer is None else peer.role,
        state=_state(machine, session),
        is_dialled=session is not None and session.is_dialled,
        since_ms=None if session is None else session.since_ms,
        rtt_ms=None if session is None else session.rtt_ms,
        blocked="" if session is None else session.blocked or session.their_blocked,
        waiting=len(queue),
        waiting_bytes=queue.bytes,
        oldest_ms=queue.oldest_ms,
        forwarded=queue.number,
        received=len(neighbour.received),
        hops_max=machine.relays.hops_max.get(neighbour.name, 0),
        advertisements=kinds[AdvertisedRoute],
        subscriptions=kinds[SubscribedRoute],
        told=len(outgoing.table),
        covered=outgoing.covered,
    )


def _state(machine: FederationMachine, session: LinkSession | None) -> str:
    if session is None:
        return DOWN
    if not session.is_up:
        return OPENING
    sent_ms = session.probe_sent_ms
    is_late = sent_ms is not None and machine.now_ms - sent_ms >= machine.config.probe_ms
    return STALLED if is_late else UP

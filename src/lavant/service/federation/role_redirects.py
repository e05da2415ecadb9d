"""Sends clients to brokers of the right role: publishers to heads, subscribers to edges.

A request is redirected only if it could be done elsewhere and the way there is up; otherwise this broker does it. A
client that comes back over the same connection cannot connect there, and is served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from lavant.broker.federation.routes.roles import BrokerRole, edge_for
from lavant.broker.machine.effects import Reply
from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.federation import BrokerMember, RedirectSubscription
from lavant.broker.protocol.namespaces import in_namespace
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Advertise, Publish, Subscribe, Unadvertise
from lavant.broker.queues.validation import refusal
from lavant.core.errors import AtOtherBroker, LavantError, NotEdge, NotHead

if TYPE_CHECKING:
    from lavant.service.federation.links import FederationLinks

_OfPublishers: TypeAlias = Publish | Advertise | Unadvertise


class _Then:
    """The client of a command, whose answer lets another reply go."""

    def __init__(self, reply: Reply | None) -> None:
        self._reply = reply

    def reply(self, reply: Reply) -> None:
        if self._reply is not None:
            self._reply.client.reply(self._reply)


class RoleRedirects:
    """Decides for each request of a client whether this broker does it."""

    def __init__(self, links: FederationLinks) -> None:
        self.counts = {BrokerRole.HEAD: 0, BrokerRole.EDGE: 0}
        """Requests that were sent to brokers of this role."""
        self._links = links
        self._told: WeakKeyDictionary[Any, set[tuple[str, str]]] = WeakKeyDictionary()
        """By client: the heads and the subscriptions to which it was redirected."""

    def takes(self, client: Any, number: int, request: Request) -> bool:
        """Whether a request is redirected, so that it is answered already."""
        role = self._links.machine.roles.own
        if role is BrokerRole.EDGE and isinstance(request, _OfPublishers):
            return self._redirect_publisher(client, number, request)
        if role is BrokerRole.HEAD and isinstance(request, Subscribe):
            return self._redirect_subscriber(client, number, request)
        return False

    def _redirect_publisher(self, client: Any, number: int, request: _OfPublishers) -> bool:
        head = next(filter(self._is_reachable, self._links.machine.roles.heads), None)
        if head is None or self._is_known(request) or not self._tell(client, ("", head.identity)):
            return False
        reason = f"this broker is an edge, and publishers belong to heads; connect to {head.name!r} at {head.address}"
        self._links.service.perform([Reply(client, number, self._refusal(NotHead(reason, head.address)))])
        return True

    def _is_known(self, request: _OfPublishers) -> bool:
        """Whether it is about something that was done here."""
        if isinstance(request, Publish):
            return self._links.service.ingest.admission.knows(request, self._links.clock.now_ms())
        return self._links.machine.server.broker.subscriptions.has_advertisement(request.namespace, request.name)

    def _redirect_subscriber(self, client: Any, number: int, request: Subscribe) -> bool:
        broker, key = self._links.machine.server.broker, (request.namespace, request.name)
        if request.queue or broker.subscriptions.has(*key) or broker.queues.exists(in_namespace(*key)):
            return False
        if key in broker.migrations.redirects:
            if key in self._told.get(client, ()):  # nobody has made it there
                self._record(RedirectSubscription(*key, "", "", 0), None)
            return False  # otherwise the broker machine says where it is
        reachable = (list(filter(self._is_reachable, each)) for each in self._links.machine.roles.edges)
        edges = next(filter(None, reachable), None)
        if edges is None or not self._tell(client, key):
            return False
        edge = edge_for(*key, edges)
        reason = f"this broker is a head, and subscribers belong to edges; connect to {edge.name!r} at {edge.address}"
        reply = Reply(client, number, self._refusal(NotEdge(reason, edge.address)))
        if request.lease_ms or not request.name:  # nobody else asks for it
            self._links.service.perform([reply])
            return True
        redirect_ms = self._links.machine.config.redirect_ms
        redirect = RedirectSubscription(*key, edge.name, edge.address, redirect_ms)
        try:
            self._record(redirect, reply)
        except LavantError as error:
            self._links.service.perform([Reply(client, number, refusal(error))])
        return True

    def _record(self, redirect: RedirectSubscription, then: Reply | None) -> None:
        """Record a redirect, and reply when it is durable. Raises if it is refused."""
        service, now_ms = self._links.service, self._links.clock.now_ms()
        service.perform(service.server.record(redirect, _Then(then), 0, now_ms, grows=then is not None))

    def _refusal(self, error: AtOtherBroker) -> Refused:
        self.counts[BrokerRole.HEAD if isinstance(error, NotHead) else BrokerRole.EDGE] += 1
        return refusal(error)

    def _tell(self, client: Any, what: tuple[str, str]) -> bool:
        """Whether a client has not been told yet; it is told now."""
        told = self._told.setdefault(client, set())
        is_new = what not in told
        told.add(what)
        return is_new

    def _is_reachable(self, member: BrokerMember) -> bool:
        return bool(member.address) and self._links.machine.migrations.session_to(member.identity) is not None

"""`/federation`: links, brokers, and traces of publications through them."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.protocol.federation import DescribeFederation, MoveSubscription, RemoveNeighbour, SwitchBalancing
from lavant.service.federation.balancing.views import BalancingView, balancing_view
from lavant.service.federation.links import FederationLinks
from lavant.service.federation.moves import LocalSubscription
from lavant.service.federation.tracing import TraceHop
from lavant.service.federation.views import FederationView, federation_view
from lavant.service.http.bodies import JSON, read_json
from lavant.service.http.context import ApiContext, http_errors, json_response
from lavant.service.http.errors import ApiError
from lavant.service.http.operation import Body, Operation, OperationOutcome, Parameter


class NewTrace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    publication: dict[str, Any]
    namespace: str = ""


class TraceResult(msgspec.Struct, frozen=True, kw_only=True):
    hops: list[TraceHop]
    """Of each broker that the publication would reach, this one first."""


class RemovedNeighbour(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    publications: int
    """Publications that waited for it, and were deleted."""
    bytes: int
    oldest_ms: int | None
    ids: list[str]
    """Of the first of them."""


class NewMove(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    subscription: str
    broker: str
    """Where it moves to."""
    namespace: str = ""


class MovedSubscription(msgspec.Struct, frozen=True, kw_only=True):
    subscription: str
    broker: str
    address: str
    """For clients of that broker."""
    pause_ms: int
    """For so long, neither queue delivered."""


class BalancingSwitch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    is_on: bool
    """Until the broker restarts."""


class LocalSubscriptions(msgspec.Struct, frozen=True, kw_only=True):
    subscriptions: list[LocalSubscription]


async def show_federation(context: ApiContext, request: Request) -> Response:
    return json_response(federation_view(_links(context, request)))


async def trace(context: ApiContext, request: Request) -> Response:
    links = _links(context, request)
    asked = await read_json(request, context.limits, NewTrace)
    principal = context.principal(request)
    if asked.namespace and not principal.is_operator:
        raise ApiError(403, "AccessDenied", f"key {principal.name!r} may trace in the default namespace only")
    with http_errors():
        hops = await links.traces.trace(asked.namespace, msgspec.json.encode(asked.publication))
    return json_response(TraceResult(hops=hops))


async def move(context: ApiContext, request: Request) -> Response:
    asked = await read_json(request, context.limits, NewMove)
    moved = await context.ask(
        context.principal(request), MoveSubscription(asked.subscription, asked.broker, asked.namespace)
    )
    return json_response(
        MovedSubscription(subscription=moved.name, broker=moved.broker, address=moved.address, pause_ms=moved.pause_ms)
    )


async def local_subscriptions(context: ApiContext, request: Request) -> Response:
    return json_response(LocalSubscriptions(subscriptions=_links(context, request).moves.local()))


async def show_balancing(context: ApiContext, request: Request) -> Response:
    return json_response(balancing_view(_links(context, request).balancer))


async def switch_balancing(context: ApiContext, request: Request) -> Response:
    asked = await read_json(request, context.limits, BalancingSwitch)
    await context.ask(context.principal(request), SwitchBalancing(asked.is_on))
    return json_response(asked)


async def remove_neighbour(context: ApiContext, request: Request) -> Response:
    removed = await context.ask(context.principal(request), RemoveNeighbour(request.path_params["name"]))
    return json_response(
        RemovedNeighbour(
            name=removed.name,
            publications=removed.publications,
            bytes=removed.bytes,
            oldest_ms=removed.oldest_ms,
            ids=removed.ids,
        )
    )


def _links(context: ApiContext, request: Request) -> FederationLinks:
    context.authorized(context.principal(request), DescribeFederation())
    links = context.service.links
    if links is None:
        raise ApiError(404, "NoFederation", "this server is no broker of a federation; start it with --name")
    return links


_NO_FEDERATION = OperationOutcome(404, "the server was started without --name")
_QUOTE = {"symbol": "IBM", "price": 121.5}
_VIEW = {
    "name": "B1",
    "identity": "87c9d5316115065a",
    "epoch": 1,
    "links": [
        {
            "neighbour": "B2",
            "identity": "03c57587e346f500",
            "state": "up",
            "fault": None,
            "address": None,
            "waiting": 0,
            "waiting_bytes": 0,
            "oldest_s": 0.0,
            "forwarded": 3,
            "received": 0,
            "hops_max": 0,
            "advertisements": 1,
            "subscriptions": 1,
            "told": 2,
            "covered": 0,
            "rtt_ms": 1,
        }
    ],
    "members": [
        {
            "name": "B1",
            "identity": "87c9d5316115065a",
            "epoch": 1,
            "path": ["B1"],
            "address": "lavant://127.0.0.1:7001",
            "role": "edge",
            "cluster": "B2",
        },
        {
            "name": "B2",
            "identity": "03c57587e346f500",
            "epoch": 1,
            "path": ["B1", "B2"],
            "address": "lavant://127.0.0.1:7002",
            "role": "head",
            "cluster": "B2",
        },
    ],
    "joins": [],
}
_HOP = {
    "broker": "B1",
    "path": [],
    "subscriptions": ["dear"],
    "links": [{"neighbour": "B2", "is_forwarded": False, "reason": "none of the 3 subscriptions behind it matches"}],
    "events": [],
    "fault": None,
}
_REMOVED = {"name": "B2", "publications": 2, "bytes": 92, "oldest_ms": 1772271000000, "ids": ["1-1", "1-2"]}

_LOAD = {
    "subscriptions": 120,
    "input": 0.42,
    "output": 0.32,
    "matching_delay_s": 0.0196,
    "input_rate_per_s": 21.4,
    "output_bytes_per_s": 32000.0,
    "bandwidth_bytes_per_s": 100000.0,
    "cpu": 0.2,
    "backlog": 0,
}
_BALANCING = {
    "name": "B1",
    "is_on": True,
    "fault": None,
    "policy": "shares",
    "cluster": "federation",
    "balances_with": None,
    "status": "ok",
    "load": _LOAD,
    "peers": [{"broker": "B2", "status": "ok", "load": _LOAD}],
    "sessions": 0,
    "moved": 0,
    "failed": 0,
    "pause_ms_p99": None,
    "decisions": [],
}
_LOCAL = {"namespace": "", "name": "dear", "is_movable": True}
_MOVED = {"subscription": "dear", "broker": "B2", "address": "lavant://127.0.0.1:7002", "pause_ms": 12}

FEDERATION_OPERATIONS = (
    Operation(
        method="GET",
        path="/federation",
        request=DescribeFederation,
        summary="Show the links of this broker, and all brokers that it knows",
        handler=show_federation,
        outcomes=(OperationOutcome(200, "links and brokers", FederationView, _VIEW), _NO_FEDERATION),
    ),
    Operation(
        method="POST",
        path="/federation/trace",
        request=DescribeFederation,
        summary="Tell where a publication would go, broker by broker, without publishing it",
        handler=trace,
        bodies=(Body(JSON, NewTrace, {"publication": _QUOTE}),),
        outcomes=(OperationOutcome(200, "what each broker would do", TraceResult, {"hops": [_HOP]}), _NO_FEDERATION),
    ),
    Operation(
        method="GET",
        path="/federation/subscriptions",
        request=DescribeFederation,
        summary="List the subscriptions at this broker, and whether they can move",
        handler=local_subscriptions,
        outcomes=(
            OperationOutcome(200, "subscriptions", LocalSubscriptions, {"subscriptions": [_LOCAL]}),
            _NO_FEDERATION,
        ),
    ),
    Operation(
        method="POST",
        path="/federation/moves",
        request=MoveSubscription,
        summary="Move a subscription with its queue to another broker; answered when that delivers",
        handler=move,
        bodies=(Body(JSON, NewMove, {"subscription": "dear", "broker": "B2"}),),
        outcomes=(
            OperationOutcome(200, "it has moved", MovedSubscription, _MOVED),
            OperationOutcome(307, "it is at another broker already: see `Location`"),
            OperationOutcome(404, "there is no such subscription here"),
            OperationOutcome(503, "it stays, with the reason"),
        ),
    ),
    Operation(
        method="GET",
        path="/federation/balancing",
        request=DescribeFederation,
        summary="Show the load of this broker and of its peers, and what balancing decided",
        handler=show_balancing,
        outcomes=(OperationOutcome(200, "loads and decisions", BalancingView, _BALANCING), _NO_FEDERATION),
    ),
    Operation(
        method="PUT",
        path="/federation/balancing",
        request=SwitchBalancing,
        summary="Let this broker take part in balancing, or not, until it restarts",
        handler=switch_balancing,
        bodies=(Body(JSON, BalancingSwitch, {"is_on": True}),),
        outcomes=(
            OperationOutcome(200, "as asked", BalancingSwitch, {"is_on": True}),
            _NO_FEDERATION,
        ),
    ),
    Operation(
        method="DELETE",
        path="/federation/neighbours/{name}",
        request=RemoveNeighbour,
        summary="Remove a neighbour for good, with the publications that wait for it",
        handler=remove_neighbour,
        parameters=(Parameter("name", "path", "of the neighbour", is_required=True),),
        outcomes=(OperationOutcome(200, "what waited for it", RemovedNeighbour, _REMOVED), _NO_FEDERATION),
    ),
)

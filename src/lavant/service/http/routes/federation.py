"""`/federation`: links, brokers, and traces of publications through them."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.protocol.federation import DescribeFederation, RemoveNeighbour
from lavant.service.federation.links import FederationLinks
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


async def show_federation(context: ApiContext, request: Request) -> Response:
    return json_response(federation_view(_links(context, request)))


async def trace(context: ApiContext, request: Request) -> Response:
    links = _links(context, request)
    asked = await read_json(request, context.limits, NewTrace)
    with http_errors():
        hops = await links.traces.trace(asked.namespace, msgspec.json.encode(asked.publication))
    return json_response(TraceResult(hops=hops))


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

FEDERATION_OPERATIONS = (
    Operation(
        method="GET",
        path="/federation",
        request=DescribeFederation,
        summary="Show the links of this broker, and all brokers that it knows",
        handler=show_federation,
        outcomes=(OperationOutcome(200, "links and brokers", FederationView), _NO_FEDERATION),
    ),
    Operation(
        method="POST",
        path="/federation/trace",
        request=DescribeFederation,
        summary="Tell where a publication would go, broker by broker, without publishing it",
        handler=trace,
        bodies=(Body(JSON, NewTrace, {"publication": _QUOTE}),),
        outcomes=(OperationOutcome(200, "what each broker would do", TraceResult), _NO_FEDERATION),
    ),
    Operation(
        method="DELETE",
        path="/federation/neighbours/{name}",
        request=RemoveNeighbour,
        summary="Remove a neighbour for good, with the publications that wait for it",
        handler=remove_neighbour,
        parameters=(Parameter("name", "path", "of the neighbour", is_required=True),),
        outcomes=(OperationOutcome(200, "what waited for it", RemovedNeighbour), _NO_FEDERATION),
    ),
)

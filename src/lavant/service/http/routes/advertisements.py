"""`/advertisements`: filters that publishers announce.

Advertisements only inform: you can list them and compare them with filters. A publication that matches none of them is
still accepted.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.filters import Filter, intersects, parse
from lavant.broker.protocol.subscriptions import (
    Advertise,
    AdvertisementState,
    ListAdvertisements,
    Unadvertise,
)
from lavant.broker.queues.validation import refusal
from lavant.core.errors import InvalidValue
from lavant.service.http.bodies import integer, page_end, read_json
from lavant.service.http.context import ApiContext, json_response
from lavant.service.http.errors import error_of
from lavant.service.http.schemas import AdvertisementsPage, AdvertisementView, NewAdvertisement


async def advertise(context: ApiContext, request: Request) -> Response:
    principal = context.principal(request)
    asked = await read_json(request, context.limits, NewAdvertisement)
    answer = await context.ask(principal, Advertise(asked.filter, asked.name))
    return json_response(_view(answer.advertisement), 201 if answer.is_new else 200)


async def list_advertisements(context: ApiContext, request: Request) -> Response:
    """All advertisements, or those that intersect a filter."""
    principal = context.principal(request)
    query = request.query_params
    wanted = _parsed(query["intersects"]) if "intersects" in query else None
    limit = integer(query, "limit", default=100, lowest=1, highest=1000)
    asked = ListAdvertisements(after=query.get("after", ""), count=limit)
    found = (await context.ask(principal, asked)).advertisements
    shown = found if wanted is None else await asyncio.to_thread(_intersecting, found, wanted)
    # A page may have fewer than it examined: `next` says whether there are more.
    page = AdvertisementsPage(
        advertisements=list(map(_view, shown)), next=page_end([each.name for each in found], limit)
    )
    return json_response(page)


async def unadvertise(context: ApiContext, request: Request) -> Response:
    await context.ask(context.principal(request), Unadvertise(request.path_params["name"]))
    return Response(status_code=204)


def _intersecting(found: list[AdvertisementState], wanted: Filter) -> list[AdvertisementState]:
    return [each for each in found if intersects(parse(each.filter), wanted)]


def _parsed(text: str) -> Filter:
    try:
        return parse(text)
    except InvalidValue as error:
        raise error_of(refusal(error)) from None


def _view(state: AdvertisementState) -> AdvertisementView:
    return AdvertisementView(name=state.name, filter=state.filter, created_ms=state.created_ms)

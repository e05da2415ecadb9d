"""`POST /subscriptions/{name}/receive` and `/acknowledge`: receive messages by request and answer."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    Delivery,
    Done,
    Receipt,
    Receive,
    Received,
    Refused,
    Release,
)
from lavant.service.auth.keys import Principal
from lavant.service.delivery import queue as queue_delivery
from lavant.service.delivery.queue import PULL, QueueDelivery, is_json
from lavant.service.http.bodies import read_json
from lavant.service.http.context import ApiContext, json_response
from lavant.service.http.errors import ApiError, error_of
from lavant.service.http.routes.subscriptions import find
from lavant.service.http.schemas import (
    AcknowledgeAnswer,
    AcknowledgeBody,
    ReceiveAnswer,
    ReceiveBody,
    ReceivedMessage,
    refused_entries,
)
from lavant.service.net.connections import ClientGone, connection_of

CLIENT_GONE = 499
"""The status for a client that closed its connection."""


async def receive(context: ApiContext, request: Request) -> Response:
    principal = context.principal(request)
    asked = await read_json(request, context.limits, ReceiveBody)
    state = await find(context, principal, request.path_params["name"])
    command = Receive(state.queue, asked.count, asked.visibility_ms, asked.wait_ms)
    deliveries = await leased(context, request, principal, command)
    if deliveries is None:
        return Response(status_code=CLIENT_GONE)
    return json_response(ReceiveAnswer(messages=list(map(_message, deliveries))))


async def leased(
    context: ApiContext, request: Request, principal: Principal, command: Receive
) -> list[Delivery] | None:
    """Messages for a client, which may wait for them; None if it has left meanwhile."""
    try:
        answer = await context.answer(principal, command, connection_of(request.scope))
    except ClientGone:
        return None
    if isinstance(answer, Refused):
        raise error_of(answer)
    assert isinstance(answer, Received)
    context.deliveries[QueueDelivery].delivered[PULL] += len(answer.deliveries)
    return answer.deliveries


async def acknowledge(context: ApiContext, request: Request) -> Response:
    principal = context.principal(request)
    asked = await read_json(request, context.limits, AcknowledgeBody)
    if not 1 <= len(asked.receipts) + len(asked.give_back) <= context.limits.entries_max:
        raise ApiError(400, "LimitExceeded", f"give 1 to {context.limits.entries_max} receipts")
    state = await find(context, principal, request.path_params["name"])
    done, returned = ([receipt_of(text) for text in texts] for texts in (asked.receipts, asked.give_back))
    wanted = Acknowledge(state.queue, done)
    command = context.authorized(principal, wanted)
    assert isinstance(command, Acknowledge)
    refused = await queue_delivery.acknowledge(context.service, command.queue, done)
    context.tell(principal, wanted, Acknowledged(refused))
    await queue_delivery.give_back(context.service, command.queue, returned)
    if returned:
        context.tell(principal, Release(state.queue, returned), Done())
    answer = AcknowledgeAnswer(
        acknowledged=len(done) - len(refused),
        refused=refused_entries(refused),
    )
    return json_response(answer)


def content_of(delivery: Delivery) -> tuple[msgspec.Raw | None, bytes | None]:
    """A message as a publication, or as bytes if it is not JSON: clients may also send to the queue."""
    return (msgspec.Raw(delivery.body), None) if is_json(delivery.body) else (None, delivery.body)


def _message(delivery: Delivery) -> ReceivedMessage:
    publication, body = content_of(delivery)
    receipt = delivery.receipt
    return ReceivedMessage(
        receipt=text_of_receipt(receipt),
        id=receipt.number,
        attempt=delivery.receive_count,
        publication=publication,
        body=body,
    )


def text_of_receipt(receipt: Receipt) -> str:
    return f"{receipt.number:x}-{receipt.lease:x}"


def receipt_of(text: str) -> Receipt:
    number, _, lease = text.partition("-")
    try:
        receipt = Receipt(int(number, 16), int(lease, 16))
    except ValueError:
        receipt = Receipt(-1, -1)
    if not (0 <= receipt.number < 1 << 64 and 0 <= receipt.lease < 1 << 64):
        raise ApiError(400, "InvalidValue", f"{text[:60]!r} is not a receipt; use one that came with a message")
    return receipt

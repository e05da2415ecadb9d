"""`/queues`: create, list, describe, configure and delete queues; send, look at, receive and settle messages."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    ChangeVisibility,
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    Delivery,
    Described,
    DescribeQueue,
    ListQueues,
    Peek,
    PeekedMessage,
    PurgeQueue,
    Receive,
    Refused,
    Send,
    SendEntry,
    StartMove,
    TagQueue,
    VisibilityChange,
)
from lavant.core.errors import QueueExists
from lavant.core.publications.trace_context import as_attributes, of_headers, of_message
from lavant.service.auth.keys import Principal
from lavant.service.http.bodies import integer, page_end, read_json
from lavant.service.http.context import ApiContext, check_tag, json_response, must_be_new, tag_of, tagged_response
from lavant.service.http.errors import ApiError, bad_request, error_of
from lavant.service.http.routes.receive import CLIENT_GONE, leased, receipt_of, text_of_receipt
from lavant.service.http.schemas import (
    MessagesView,
    NewMessage,
    NewQueue,
    QueuedMessage,
    QueuedMessages,
    QueueSettings,
    QueuesPage,
    QueueView,
    ReceiveBody,
    RedriveAnswer,
    RedriveBody,
    SendAnswer,
    SendBody,
    SettleAnswer,
    SettleBody,
    refused_entries,
)

_TOTALS = ("sent", "received", "acknowledged", "expired", "returned", "dead_lettered", "deduplicated")


async def list_queues(context: ApiContext, request: Request) -> Response:
    query = request.query_params
    limit = integer(query, "limit", default=100, lowest=1, highest=1000)
    asked = ListQueues(prefix=query.get("prefix", ""), after=query.get("after", ""), count=limit)
    found = (await context.ask(context.principal(request), asked)).queues
    return json_response(QueuesPage(queues=found, next=page_end(found, limit)))


async def put_queue(context: ApiContext, request: Request) -> Response:
    """Creates a queue, or replaces the settings of one that exists."""
    principal, name = context.principal(request), request.path_params["name"]
    wanted = await read_json(request, context.limits, NewQueue)
    config = wanted.settings.config()
    tags = {} if wanted.tags is None else wanted.tags
    if "if-match" not in request.headers:
        answer = await context.answer(principal, CreateQueue(name, config, tags))
        is_new = getattr(answer, "is_new", False)
        if isinstance(answer, Refused) and answer.code != QueueExists.__name__:
            raise error_of(answer)
        if must_be_new(request) and not is_new:
            raise ApiError(412, "PreconditionFailed", f"there is a queue {name!r} already, and If-None-Match is *")
        if not isinstance(answer, Refused):
            return await _answered(context, principal, request, name, 201 if is_new else 200)
    before = await context.ask(principal, DescribeQueue(name))
    check_tag(request, _tag(before))
    if before.config != config:
        await context.ask(principal, ConfigureQueue(name, config))
    if wanted.tags is not None and before.tags != wanted.tags:
        await context.ask(principal, TagQueue(name, wanted.tags))
    return await _answered(context, principal, request, name, 200)


async def describe_queue(context: ApiContext, request: Request) -> Response:
    return await _answered(context, context.principal(request), request, request.path_params["name"], 200)


async def delete_queue(context: ApiContext, request: Request) -> Response:
    principal, name = context.principal(request), request.path_params["name"]
    if "if-match" in request.headers:
        check_tag(request, _tag(await context.ask(principal, DescribeQueue(name))))
    await context.ask(principal, DeleteQueue(name))
    return Response(status_code=204)


async def send(context: ApiContext, request: Request) -> Response:
    principal, name = context.principal(request), request.path_params["name"]
    asked = await read_json(request, context.limits, SendBody)
    attributes = as_attributes(of_headers(request.headers))
    entries = [
        SendEntry(_body(place, each), attributes, each.delay_ms, each.group, each.deduplication)
        for place, each in enumerate(asked.messages)
    ]
    sent = (await context.ask(principal, Send(name, entries))).entries
    refused = [(place, each) for place, each in enumerate(sent) if isinstance(each, Refused)]
    if len(refused) == len(sent):
        raise error_of(refused[0][1])
    ids = [None if isinstance(each, Refused) else each.number for each in sent]
    return json_response(SendAnswer(ids=ids, refused=refused_entries(dict(refused))), 201)


async def look(context: ApiContext, request: Request) -> Response:
    query = request.query_params
    count = integer(query, "limit", default=10, lowest=1, highest=1000)
    after = integer(query, "after", default=0, lowest=0, highest=2**63 - 1)
    asked = Peek(request.path_params["name"], count, after)
    found = (await context.ask(context.principal(request), asked)).messages
    return json_response(QueuedMessages(messages=list(map(_looked_at, found))))


async def purge(context: ApiContext, request: Request) -> Response:
    await context.ask(context.principal(request), PurgeQueue(request.path_params["name"]))
    return Response(status_code=204)


async def receive(context: ApiContext, request: Request) -> Response:
    principal = context.principal(request)
    asked = await read_json(request, context.limits, ReceiveBody)
    command = Receive(request.path_params["name"], asked.count, asked.visibility_ms, asked.wait_ms)
    deliveries = await leased(context, request, principal, command)
    if deliveries is None:
        return Response(status_code=CLIENT_GONE)
    return json_response(QueuedMessages(messages=list(map(_received, deliveries))))


async def settle(context: ApiContext, request: Request) -> Response:
    principal, name = context.principal(request), request.path_params["name"]
    asked = await read_json(request, context.limits, SettleBody)
    if not 1 <= len(asked.receipts) + len(asked.release) <= context.limits.entries_max:
        raise ApiError(400, "LimitExceeded", f"give 1 to {context.limits.entries_max} receipts")
    done = [receipt_of(text) for text in asked.receipts]
    changes = [VisibilityChange(receipt_of(each.receipt), each.after_ms, each.reason) for each in asked.release]
    refused: dict[int, Refused] = {}
    if done:
        refused |= (await context.ask(principal, Acknowledge(name, done))).refused
    failed = len(refused)
    if changes:
        answer = await context.ask(principal, ChangeVisibility(name, changes))
        refused |= {len(done) + place: each for place, each in answer.refused.items()}
    answered = SettleAnswer(
        acknowledged=len(done) - failed,
        released=len(changes) - len(refused) + failed,
        refused=refused_entries(refused),
    )
    return json_response(answered)


async def redrive(context: ApiContext, request: Request) -> Response:
    asked = await read_json(request, context.limits, RedriveBody)
    command = StartMove(request.path_params["name"], asked.destination, asked.rate_per_s)
    started = await context.ask(context.principal(request), command)
    return json_response(RedriveAnswer(task=started.task), 202)


async def _answered(context: ApiContext, principal: Principal, request: Request, name: str, status: int) -> Response:
    described = await context.ask(principal, DescribeQueue(name))
    return tagged_response(request, _view(name, described), _tag(described), status)


def _tag(described: Described) -> str:
    """Of the settings and tags; figures change all the time, and are not part of it."""
    return tag_of(described.created_ms, _settings(described.config), described.tags)


def _settings(config: QueueConfig) -> QueueSettings:
    return QueueSettings(**msgspec.structs.asdict(config))


def _view(name: str, described: Described) -> QueueView:
    figures = described.figures
    return QueueView(
        name=name,
        settings=_settings(described.config),
        tags=described.tags,
        created_ms=described.created_ms,
        changed_ms=described.changed_ms,
        messages=MessagesView(
            visible=figures.visible,
            in_flight=figures.in_flight,
            delayed=figures.delayed,
            oldest_sent_ms=figures.oldest_sent_ms,
        ),
        totals={each: getattr(figures, each) for each in _TOTALS},
    )


def _body(place: int, message: NewMessage) -> bytes:
    has_json = message.json is not msgspec.UNSET
    if (message.text is not None) + has_json + (message.body_base64 is not None) != 1:
        raise bad_request(f"message {place} needs one of text, json and body_base64")
    if message.text is not None:
        return message.text.encode()
    if message.body_base64 is not None:
        return message.body_base64
    return msgspec.json.encode(message.json)


def _content(body: bytes) -> tuple[str | None, bytes | None]:
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return None, body


def _received(delivery: Delivery) -> QueuedMessage:
    text, body = _content(delivery.body)
    trace = of_message(delivery.attributes)
    return QueuedMessage(
        id=delivery.receipt.number,
        receipt=text_of_receipt(delivery.receipt),
        sent_ms=delivery.sent_ms,
        attempt=delivery.receive_count,
        text=text,
        body_base64=body,
        group=delivery.group,
        origin=delivery.origin,
        reason=delivery.reason,
        attempts=delivery.attempts,
        traceparent=trace.parent,
        tracestate=trace.state,
    )


def _looked_at(message: PeekedMessage) -> QueuedMessage:
    text, body = _content(message.body)
    return QueuedMessage(
        id=message.number,
        state=message.state,
        sent_ms=message.sent_ms,
        attempt=message.receive_count,
        text=text,
        body_base64=body,
        group=message.group,
        origin=message.origin,
        reason=message.reason,
        attempts=message.attempts,
    )

"""The routes of queues."""

from __future__ import annotations

from lavant.broker.protocol.queues import (
    Acknowledge,
    CreateQueue,
    DeleteQueue,
    DescribeQueue,
    ListQueues,
    Peek,
    PurgeQueue,
    Receive,
    Send,
    StartMove,
)
from lavant.service.http.bodies import JSON
from lavant.service.http.operation import Body, Operation, OperationOutcome, Parameter
from lavant.service.http.routes import queues
from lavant.service.http.schemas import (
    NewQueue,
    QueuedMessages,
    QueuesPage,
    QueueView,
    ReceiveBody,
    RedriveAnswer,
    RedriveBody,
    SendAnswer,
    SendBody,
    SettleAnswer,
    SettleBody,
)

_NAME = Parameter("name", "path", "of the queue", is_required=True)
_IF_MATCH = Parameter("If-Match", "header", "only if the ETag of the queue is still this one; 412 otherwise")
_UNKNOWN = OperationOutcome(404, "no queue has that name")
_CHANGED = OperationOutcome(412, "the queue has another ETag than If-Match says")
_SETTINGS = {"visibility_ms": 60000, "dead_letters": "dead", "receives_max": 5}
_QUEUE = {
    "name": "orders",
    "settings": _SETTINGS,
    "tags": {"team": "shop"},
    "created_ms": 1772271000000,
    "changed_ms": 1772271000000,
    "messages": {"visible": 3, "in_flight": 0, "delayed": 0, "oldest_sent_ms": 1772271000123},
    "totals": {"sent": 3, "received": 0, "acknowledged": 0},
}
_MESSAGE = {"id": 42, "receipt": "2a-100000001", "sent_ms": 1772271000123, "attempt": 1, "text": "two cups of tea"}
_SETTLE = {
    "receipts": ["2a-100000001"],
    "release": [{"receipt": "2b-100000002", "after_ms": 5000, "reason": "no tea"}],
}

QUEUE_OPERATIONS = (
    Operation(
        method="GET",
        path="/queues",
        request=ListQueues,
        summary="List queues by name",
        handler=queues.list_queues,
        parameters=(
            Parameter("prefix", "query", "only names with this prefix"),
            Parameter("after", "query", "only names after this one"),
            Parameter("limit", "query", "the size of a page, 1 to 1000; 100 by default", int, least=1, most=1000),
        ),
        outcomes=(OperationOutcome(200, "a page", QueuesPage, {"queues": ["orders"], "next": None}),),
    ),
    Operation(
        method="PUT",
        path="/queues/{name}",
        request=CreateQueue,
        summary="Create a queue, or replace its settings",
        handler=queues.put_queue,
        parameters=(_NAME, _IF_MATCH),
        bodies=(Body(JSON, NewQueue, {"settings": _SETTINGS, "tags": {"team": "shop"}}),),
        outcomes=(
            OperationOutcome(200, "it exists, with these settings now", QueueView, _QUEUE),
            OperationOutcome(201, "created", QueueView, _QUEUE),
            OperationOutcome(400, "an invalid name or setting"),
            _UNKNOWN,
            _CHANGED,
            OperationOutcome(429, "the limit of queues is reached"),
        ),
    ),
    Operation(
        method="GET",
        path="/queues/{name}",
        request=DescribeQueue,
        summary="Describe a queue",
        handler=queues.describe_queue,
        parameters=(_NAME, Parameter("If-None-Match", "header", "304 if the ETag is still this one")),
        outcomes=(
            OperationOutcome(200, "settings, tags and figures", QueueView, _QUEUE),
            OperationOutcome(304, "the client has the settings and tags already"),
            _UNKNOWN,
        ),
    ),
    Operation(
        method="DELETE",
        path="/queues/{name}",
        request=DeleteQueue,
        summary="Delete a queue with its messages",
        handler=queues.delete_queue,
        parameters=(_NAME, _IF_MATCH),
        outcomes=(OperationOutcome(204, "removed"), _UNKNOWN, _CHANGED),
    ),
    Operation(
        method="POST",
        path="/queues/{name}/messages",
        request=Send,
        summary="Send messages",
        handler=queues.send,
        parameters=(_NAME,),
        bodies=(Body(JSON, SendBody, {"messages": [{"text": "two cups of tea"}, {"json": {"item": "rice"}}]}),),
        outcomes=(
            OperationOutcome(201, "durable; some may be refused", SendAnswer, {"ids": [42, 43], "refused": []}),
            OperationOutcome(400, "nothing was accepted"),
            _UNKNOWN,
            OperationOutcome(503, "the disk or the queue is full; see Retry-After"),
        ),
    ),
    Operation(
        method="GET",
        path="/queues/{name}/messages",
        request=Peek,
        summary="Look at messages without receiving them",
        handler=queues.look,
        parameters=(
            _NAME,
            Parameter("after", "query", "only messages with a larger id", int, least=0),
            Parameter("limit", "query", "how many, 1 to 1000; 10 by default", int, least=1, most=1000),
        ),
        outcomes=(OperationOutcome(200, "messages", QueuedMessages, {"messages": [_MESSAGE]}), _UNKNOWN),
    ),
    Operation(
        method="DELETE",
        path="/queues/{name}/messages",
        request=PurgeQueue,
        summary="Delete all messages of a queue",
        handler=queues.purge,
        parameters=(_NAME,),
        outcomes=(OperationOutcome(204, "empty"), _UNKNOWN),
    ),
    Operation(
        method="POST",
        path="/queues/{name}/receive",
        request=Receive,
        summary="Receive messages, waiting for the first if there is none",
        handler=queues.receive,
        parameters=(_NAME,),
        bodies=(Body(JSON, ReceiveBody, {"count": 10, "wait_ms": 5000}),),
        outcomes=(
            OperationOutcome(200, "messages, perhaps none", QueuedMessages, {"messages": [_MESSAGE]}),
            _UNKNOWN,
            OperationOutcome(429, "too many messages are in flight"),
        ),
    ),
    Operation(
        method="POST",
        path="/queues/{name}/acknowledge",
        request=Acknowledge,
        summary="Acknowledge messages, or release them with a reason",
        handler=queues.settle,
        parameters=(_NAME,),
        bodies=(Body(JSON, SettleBody, _SETTLE),),
        outcomes=(
            OperationOutcome(
                200,
                "done; some may be refused",
                SettleAnswer,
                {"acknowledged": 1, "released": 1, "refused": []},
            ),
            _UNKNOWN,
        ),
    ),
    Operation(
        method="POST",
        path="/queues/{name}/redrive",
        request=StartMove,
        summary="Move dead letters back to where they came from, or to another queue",
        handler=queues.redrive,
        parameters=(_NAME,),
        bodies=(Body(JSON, RedriveBody, {"rate_per_s": 100}),),
        outcomes=(
            OperationOutcome(202, "started", RedriveAnswer, {"task": 1}),
            _UNKNOWN,
            OperationOutcome(409, "its messages are already being moved"),
        ),
    ),
)

"""The table of all routes: the application and the OpenAPI description are generated from it."""

from __future__ import annotations

from typing import Any

from lavant.broker.protocol.queues import Acknowledge, Receive
from lavant.broker.protocol.subscriptions import (
    Advertise,
    DescribeSubscription,
    ListAdvertisements,
    ListSubscriptions,
    Publish,
    RenewSubscription,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    UpdateSubscription,
)
from lavant.service.http.bodies import JSON
from lavant.service.http.operation import EVENTS, STREAM, Body, Operation, OperationOutcome, Parameter
from lavant.service.http.routes import advertisements, subscriptions
from lavant.service.http.routes import publish as publishing
from lavant.service.http.routes import receive as pulling
from lavant.service.http.routes.cloudevents import BATCH, STRUCTURED
from lavant.service.http.routes.federation import FEDERATION_OPERATIONS
from lavant.service.http.routes.job_operations import JOB_OPERATIONS
from lavant.service.http.routes.queue_operations import QUEUE_OPERATIONS
from lavant.service.http.routes.schedules import SCHEDULE_OPERATIONS
from lavant.service.http.schemas import (
    AcknowledgeAnswer,
    AcknowledgeBody,
    AdvertisementsPage,
    AdvertisementView,
    NewAdvertisement,
    NewSubscription,
    PublishAnswer,
    ReceiveAnswer,
    ReceiveBody,
    SubscribeManyAnswer,
    SubscriptionsPage,
    SubscriptionUpdate,
    SubscriptionView,
)

_NAME = Parameter("name", "path", "of the subscription", is_required=True)
_IF_MATCH = Parameter("If-Match", "header", "only if the ETag of the subscription is still this one; 412 otherwise")
_CHANGED = OperationOutcome(412, "the subscription has another ETag than If-Match says")
_PAGE = (
    Parameter("after", "query", "only names after this one"),
    Parameter("limit", "query", "the size of a page, 1 to 1000; 100 by default", int, least=1, most=1000),
)
_STREAM = (
    Parameter("prefetch", "query", "the limit of unacknowledged messages", int),
    Parameter("visibility_ms", "query", "the lease of a message; that of the queue by default", int),
)
_FILTER = Parameter("filter", "query", "the filter of the stream", is_required=True)
_LAST = Parameter("Last-Event-ID", "header", "the last event that the client has; events up to it are acknowledged")

_PUBLICATION = {"symbol": "IBM", "price": 121.5, "@id": "quote-1"}
_EVENT = {"specversion": "1.0", "id": "1", "source": "/till/7", "type": "sold", "data": {"price": 3.5}}
_SUBSCRIPTION = {"name": "dear", "filter": "price > 100"}
_SEEN = {"name": "dear", "filter": "price > 100", "queue": "dear", "owns_queue": True, "created_ms": 1772271000000}
_SEEN_WHOLE = {
    **_SEEN,
    "messages": {"visible": 3, "in_flight": 0, "delayed": 0, "oldest_sent_ms": 1772271000123},
}
_SUBSCRIBED = (SubscriptionView, SubscribeManyAnswer)
_MESSAGE = {"receipt": "2a-100000001", "id": 42, "attempt": 1, "publication": _PUBLICATION}
_ADVERTISEMENT = {"name": "quotes", "filter": "price > 0"}
_BAD_FILTER = OperationOutcome(
    400, "an invalid filter, with a caret at the position of the mistake, or another invalid value"
)
_NOT_FOUND = OperationOutcome(404, "nothing has that name")
_NOT_ACCEPTED = OperationOutcome(406, "the header Accept lacks text/event-stream")

OPERATIONS = (
    Operation(
        method="POST",
        path="/publish",
        request=Publish,
        summary="Publish: one, many, lines, or CloudEvents",
        handler=publishing.publish,
        parameters=(
            Parameter(
                publishing.KEY_HEADER,
                "header",
                "a repetition with the same key and content within 5 minutes publishes nothing; with other content it "
                "is refused",
            ),
        ),
        bodies=(
            Body(JSON, dict[str, Any] | list[dict[str, Any]], _PUBLICATION),
            *(Body(kind, str, '{"price": 1}\n{"price": 2}\n') for kind in publishing.JSON_LINES),
            Body(STRUCTURED, dict[str, Any], _EVENT),
            Body(BATCH, list[dict[str, Any]], [_EVENT]),
        ),
        outcomes=(
            OperationOutcome(
                202,
                "durable in the queues of all matching subscriptions",
                PublishAnswer,
                {"accepted": 1, "ids": ["quote-1"], "refused": []},
            ),
            OperationOutcome(400, "nothing was accepted"),
            OperationOutcome(413, "the request, or each of its publications, is too large"),
            OperationOutcome(415, "the content type is unknown"),
            OperationOutcome(422, "the idempotency key belongs to a request with other content; nothing was published"),
            OperationOutcome(429, "the server is overloaded, or the rate of this key is exceeded; see Retry-After"),
            OperationOutcome(503, "the disk or the queue of a matching subscription is full; see Retry-After"),
        ),
    ),
    Operation(
        method="POST",
        path="/subscriptions",
        request=Subscribe,
        summary="Subscribe: deliver publications that match a filter into a queue, or to a webhook",
        handler=subscriptions.subscribe,
        bodies=(Body(JSON, NewSubscription | list[NewSubscription], _SUBSCRIPTION),),
        outcomes=(
            OperationOutcome(200, "it exists already, with the same members", _SUBSCRIBED, _SEEN),
            OperationOutcome(201, "created; of many, at least one is new", _SUBSCRIBED, _SEEN),
            _BAD_FILTER,
            OperationOutcome(409, "another one has that name"),
            OperationOutcome(429, "the limit of subscriptions is reached"),
        ),
    ),
    Operation(
        method="GET",
        path="/subscriptions",
        request=ListSubscriptions,
        summary="List subscriptions by name",
        handler=subscriptions.list_subscriptions,
        parameters=(Parameter("prefix", "query", "only names with this prefix"), *_PAGE),
        outcomes=(OperationOutcome(200, "a page", SubscriptionsPage, {"subscriptions": [_SEEN], "next": None}),),
    ),
    Operation(
        method="GET",
        path="/subscriptions/{name}",
        request=DescribeSubscription,
        summary="Describe a subscription and its queue",
        handler=subscriptions.describe_subscription,
        parameters=(_NAME, Parameter("If-None-Match", "header", "304 if the ETag is still this one")),
        outcomes=(
            OperationOutcome(200, "the subscription", SubscriptionView, _SEEN_WHOLE),
            OperationOutcome(304, "the client has the subscription already; its messages may be others"),
            _NOT_FOUND,
        ),
    ),
    Operation(
        method="PATCH",
        path="/subscriptions/{name}",
        request=UpdateSubscription,
        summary="Change the filter of a subscription; its queue stays, with everything that waits there",
        handler=subscriptions.update,
        parameters=(_NAME, _IF_MATCH),
        bodies=(Body(JSON, SubscriptionUpdate, {"filter": "price > 120"}),),
        outcomes=(
            OperationOutcome(200, "the subscription", SubscriptionView, _SEEN_WHOLE),
            _BAD_FILTER,
            _NOT_FOUND,
            _CHANGED,
        ),
    ),
    Operation(
        method="DELETE",
        path="/subscriptions/{name}",
        request=Unsubscribe,
        summary="Unsubscribe, and delete the queue that the subscription owns",
        handler=subscriptions.unsubscribe,
        parameters=(_NAME, _IF_MATCH),
        outcomes=(OperationOutcome(204, "removed"), _NOT_FOUND, _CHANGED),
    ),
    Operation(
        method="POST",
        path="/subscriptions/{name}/renew",
        request=RenewSubscription,
        summary="Renew the lease of a temporary subscription; receiving from it does so too",
        handler=subscriptions.renew,
        parameters=(_NAME,),
        outcomes=(
            OperationOutcome(
                200, "the subscription", SubscriptionView, {**_SEEN, "lease_ms": 60000, "expires_ms": 1772271060123}
            ),
            OperationOutcome(400, "the subscription is not temporary"),
            _NOT_FOUND,
        ),
    ),
    Operation(
        method="POST",
        path="/subscriptions/{name}/receive",
        request=Receive,
        summary="Receive messages, waiting for the first if there is none",
        handler=pulling.receive,
        parameters=(_NAME,),
        bodies=(Body(JSON, ReceiveBody, {"count": 10, "wait_ms": 5000}),),
        outcomes=(
            OperationOutcome(200, "messages, perhaps none", ReceiveAnswer, {"messages": [_MESSAGE]}),
            _NOT_FOUND,
            OperationOutcome(429, "too many messages are in flight"),
        ),
    ),
    Operation(
        method="POST",
        path="/subscriptions/{name}/acknowledge",
        request=Acknowledge,
        summary="Acknowledge messages, so that they do not come again",
        handler=pulling.acknowledge,
        parameters=(_NAME,),
        bodies=(Body(JSON, AcknowledgeBody, {"receipts": ["2a-100000001"]}),),
        outcomes=(
            OperationOutcome(200, "done; some may be refused", AcknowledgeAnswer, {"acknowledged": 1, "refused": []}),
            _NOT_FOUND,
        ),
    ),
    Operation(
        method="GET",
        path="/subscriptions/{name}/events",
        request=Receive,
        summary="Stream the messages of a subscription as server-sent events",
        way=EVENTS,
        parameters=(_NAME, _LAST, *_STREAM),
        outcomes=(
            OperationOutcome(200, "events, until the connection ends"),
            _NOT_FOUND,
            _NOT_ACCEPTED,
            OperationOutcome(429, "too many streams"),
        ),
    ),
    Operation(
        method="GET",
        path="/events",
        request=Subscribe,
        summary="Stream server-sent events of a temporary subscription that ends with the connection",
        way=EVENTS,
        parameters=(_FILTER, *_STREAM),
        outcomes=(
            OperationOutcome(200, "events, until the connection ends"),
            _BAD_FILTER,
            _NOT_ACCEPTED,
            OperationOutcome(429, "too many streams"),
        ),
    ),
    Operation(
        method="GET",
        path="/subscriptions/{name}/stream",
        request=Receive,
        summary="Stream the messages of a subscription over a WebSocket, with acknowledgements",
        way=STREAM,
        parameters=(_NAME, *_STREAM),
        outcomes=(OperationOutcome(101, "a WebSocket"), _NOT_FOUND, OperationOutcome(429, "too many streams")),
    ),
    Operation(
        method="GET",
        path="/stream",
        request=Subscribe,
        summary="Open a WebSocket with a temporary subscription that ends with the connection",
        way=STREAM,
        parameters=(_FILTER, *_STREAM),
        outcomes=(OperationOutcome(101, "a WebSocket"), _BAD_FILTER, OperationOutcome(429, "too many streams")),
    ),
    Operation(
        method="POST",
        path="/advertisements",
        request=Advertise,
        summary="Advertise: announce what will be published",
        handler=advertisements.advertise,
        bodies=(Body(JSON, NewAdvertisement, _ADVERTISEMENT),),
        outcomes=(
            OperationOutcome(
                200, "it exists already", AdvertisementView, {**_ADVERTISEMENT, "created_ms": 1772271000000}
            ),
            OperationOutcome(201, "created", AdvertisementView, {**_ADVERTISEMENT, "created_ms": 1772271000000}),
            _BAD_FILTER,
        ),
    ),
    Operation(
        method="GET",
        path="/advertisements",
        request=ListAdvertisements,
        summary="List advertisements, all or those that intersect a filter",
        handler=advertisements.list_advertisements,
        parameters=(
            Parameter("intersects", "query", "a filter: only advertisements that intersect it"),
            *_PAGE,
        ),
        outcomes=(
            OperationOutcome(
                200,
                "a page",
                AdvertisementsPage,
                {"advertisements": [{**_ADVERTISEMENT, "created_ms": 1772271000000}], "next": None},
            ),
            _BAD_FILTER,
        ),
    ),
    Operation(
        method="DELETE",
        path="/advertisements/{name}",
        request=Unadvertise,
        summary="Withdraw an advertisement",
        handler=advertisements.unadvertise,
        parameters=(Parameter("name", "path", "of the advertisement", is_required=True),),
        outcomes=(OperationOutcome(204, "removed"), _NOT_FOUND),
    ),
    *QUEUE_OPERATIONS,
    *JOB_OPERATIONS,
    *SCHEDULE_OPERATIONS,
    *FEDERATION_OPERATIONS,
)

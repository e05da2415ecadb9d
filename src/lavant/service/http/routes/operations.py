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
)
from lavant.service.http.bodies import JSON
from lavant.service.http.operation import EVENTS, STREAM, Body, Operation, OperationOutcome, Parameter
from lavant.service.http.routes import advertisements, subscriptions
from lavant.service.http.routes import publish as publishing
from lavant.service.http.routes import receive as pulling
from lavant.service.http.routes.cloudevents import BATCH, STRUCTURED
from lavant.service.http.routes.job_operations import JOB_OPERATIONS
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
    SubscriptionView,
)

_NAME = Parameter("name", "path", "of the subscription", is_required=True)
_PAGE = (
    Parameter("after", "query", "only names behind this one"),
    Parameter("limit", "query", "how many at most, 1 to 1000; 100 if not given", int),
)
_STREAM = (
    Parameter("prefetch", "query", "how many messages may be unacknowledged", int),
    Parameter("visibility_ms", "query", "how long a message may be unacknowledged; the queue's own if not given", int),
)
_FILTER = Parameter("filter", "query", "what to send", is_required=True)
_LAST = Parameter("Last-Event-ID", "header", "the id of the last event that the client has; so much is acknowledged")

_PUBLICATION = {"symbol": "IBM", "price": 121.5, "@id": "quote-1"}
_EVENT = {"specversion": "1.0", "id": "1", "source": "/till/7", "type": "sold", "data": {"price": 3.5}}
_SUBSCRIPTION = {"name": "dear", "filter": "price > 100"}
_SEEN = {"name": "dear", "filter": "price > 100", "queue": "dear", "owns_queue": True, "created_ms": 1772271000000}
_SUBSCRIBED = (SubscriptionView, SubscribeManyAnswer)
_MESSAGE = {"receipt": "2a-100000001", "id": 42, "attempt": 1, "publication": _PUBLICATION}
_ADVERTISEMENT = {"name": "quotes", "filter": "price > 0"}
_BAD_FILTER = OperationOutcome(
    400, "a filter that cannot be read, with a caret below the mistake, or another wrong value"
)
_NOT_FOUND = OperationOutcome(404, "there is none of that name")
_NOT_ACCEPTED = OperationOutcome(406, "the header Accept does not name text/event-stream")

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
                "a request with the same key and content within 5 minutes is not done twice; with other content it is "
                "refused",
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
                "durable in the queues of all who want it",
                PublishAnswer,
                {"accepted": 1, "ids": ["quote-1"], "refused": []},
            ),
            OperationOutcome(400, "nothing was accepted"),
            OperationOutcome(413, "the request, or each of its publications, is too large"),
            OperationOutcome(415, "the content type is none of these"),
            OperationOutcome(422, "the idempotency key belongs to a request with other content; nothing was published"),
            OperationOutcome(429, "too much at the moment, or for this key; see Retry-After"),
            OperationOutcome(
                503, "there is no room on the disk, or in a queue of somebody who wants it; see Retry-After"
            ),
        ),
    ),
    Operation(
        method="POST",
        path="/subscriptions",
        request=Subscribe,
        summary="Subscribe: have what matches a filter put into a queue, or posted to a webhook",
        handler=subscriptions.subscribe,
        bodies=(Body(JSON, NewSubscription | list[NewSubscription], _SUBSCRIPTION),),
        outcomes=(
            OperationOutcome(200, "it was there already, just the same", _SUBSCRIBED, _SEEN),
            OperationOutcome(201, "it is there now; of many, at least one is new", _SUBSCRIBED, _SEEN),
            _BAD_FILTER,
            OperationOutcome(409, "there is another one of that name"),
            OperationOutcome(429, "there are as many as may be"),
        ),
    ),
    Operation(
        method="GET",
        path="/subscriptions",
        request=ListSubscriptions,
        summary="List subscriptions by name",
        handler=subscriptions.list_subscriptions,
        parameters=(Parameter("prefix", "query", "only names that begin with it"), *_PAGE),
        outcomes=(OperationOutcome(200, "a page", SubscriptionsPage, {"subscriptions": [_SEEN], "next": None}),),
    ),
    Operation(
        method="GET",
        path="/subscriptions/{name}",
        request=DescribeSubscription,
        summary="Describe a subscription, and what its queue holds",
        handler=subscriptions.describe_subscription,
        parameters=(_NAME,),
        outcomes=(
            OperationOutcome(
                200,
                "the subscription",
                SubscriptionView,
                {**_SEEN, "messages": {"visible": 3, "in_flight": 0, "delayed": 0, "oldest_sent_ms": 1772271000123}},
            ),
            _NOT_FOUND,
        ),
    ),
    Operation(
        method="DELETE",
        path="/subscriptions/{name}",
        request=Unsubscribe,
        summary="Unsubscribe; a queue of the subscription's own goes with it",
        handler=subscriptions.unsubscribe,
        parameters=(_NAME,),
        outcomes=(OperationOutcome(204, "it is gone"), _NOT_FOUND),
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
            OperationOutcome(400, "it is not temporary"),
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
            OperationOutcome(429, "too many messages are received and not acknowledged"),
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
        summary="Messages of a subscription as server-sent events",
        way=EVENTS,
        parameters=(_NAME, _LAST, *_STREAM),
        outcomes=(
            OperationOutcome(200, "events until either side ends it"),
            _NOT_FOUND,
            _NOT_ACCEPTED,
            OperationOutcome(429, "too many streams"),
        ),
    ),
    Operation(
        method="GET",
        path="/events",
        request=Subscribe,
        summary="Server-sent events of a subscription that lasts as long as the connection",
        way=EVENTS,
        parameters=(_FILTER, *_STREAM),
        outcomes=(
            OperationOutcome(200, "events until either side ends it"),
            _BAD_FILTER,
            _NOT_ACCEPTED,
            OperationOutcome(429, "too many streams"),
        ),
    ),
    Operation(
        method="GET",
        path="/subscriptions/{name}/stream",
        request=Receive,
        summary="Messages of a subscription over a WebSocket, with acknowledgements",
        way=STREAM,
        parameters=(_NAME, *_STREAM),
        outcomes=(OperationOutcome(101, "a WebSocket"), _NOT_FOUND, OperationOutcome(429, "too many streams")),
    ),
    Operation(
        method="GET",
        path="/stream",
        request=Subscribe,
        summary="A WebSocket of a subscription that lasts as long as the connection",
        way=STREAM,
        parameters=(_FILTER, *_STREAM),
        outcomes=(OperationOutcome(101, "a WebSocket"), _BAD_FILTER, OperationOutcome(429, "too many streams")),
    ),
    Operation(
        method="POST",
        path="/advertisements",
        request=Advertise,
        summary="Say what is going to be published",
        handler=advertisements.advertise,
        bodies=(Body(JSON, NewAdvertisement, _ADVERTISEMENT),),
        outcomes=(
            OperationOutcome(
                200, "it was there already", AdvertisementView, {**_ADVERTISEMENT, "created_ms": 1772271000000}
            ),
            OperationOutcome(
                201, "it is there now", AdvertisementView, {**_ADVERTISEMENT, "created_ms": 1772271000000}
            ),
            _BAD_FILTER,
        ),
    ),
    Operation(
        method="GET",
        path="/advertisements",
        request=ListAdvertisements,
        summary="List advertisements, all or those that a filter could ever match",
        handler=advertisements.list_advertisements,
        parameters=(
            Parameter("intersects", "query", "a filter: only those that it could ever meet"),
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
        summary="Take an advertisement back",
        handler=advertisements.unadvertise,
        parameters=(Parameter("name", "path", "of the advertisement", is_required=True),),
        outcomes=(OperationOutcome(204, "it is gone"), _NOT_FOUND),
    ),
    *JOB_OPERATIONS,
)

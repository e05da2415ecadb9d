"""What a principal may ask, and where: a request is placed in the namespace of whoever asks, or denied.

    request ──place──► the same request, in the principal's namespace ──► broker

| scope | lets |
| --- | --- |
| publish | publish, advertise, send to queues, submit and cancel jobs |
| subscribe | subscribe and unsubscribe; receive, acknowledge and look into queues; do the tasks of jobs |
| admin | create, set, purge and delete queues; move messages; define jobs |

Whoever has any of them may list and describe. An operator, who has no namespace and the scope admin, names queues of
namespaces as `namespace/queue`; all others reach only their own. Jobs and topics belong to the server as a whole, so
they are for keys without a namespace, for now. `lavant.service.showing` takes the namespace out of answers.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeAlias

from msgspec.structs import replace

from lavant.broker.queues import commands as queues
from lavant.broker.queues.config import NAMESPACE_END, QueueConfig
from lavant.broker.serving.commands import Request
from lavant.broker.subscriptions import commands as subscriptions
from lavant.broker.subscriptions.registry import in_namespace
from lavant.broker.workflows import commands as jobs
from lavant.core.errors import AccessDenied, Overloaded
from lavant.service.keys import Principal

_Place: TypeAlias = Callable[[Principal, Any], Any]

_ANY = ""
_SCOPES: dict[type, str] = {
    **dict.fromkeys(
        (subscriptions.Publish, subscriptions.Advertise, subscriptions.Unadvertise, queues.Send), "publish"
    ),
    **dict.fromkeys((jobs.SubmitJob, jobs.CancelJob), "publish"),
    **dict.fromkeys((subscriptions.Subscribe, subscriptions.Unsubscribe), "subscribe"),
    **dict.fromkeys((queues.Receive, queues.Acknowledge, queues.ChangeVisibility), "subscribe"),
    **dict.fromkeys((queues.Release, queues.Peek), "subscribe"),
    **dict.fromkeys((jobs.LeaseTasks, jobs.CompleteTask, jobs.FailTask, jobs.ExtendTask), "subscribe"),
    **dict.fromkeys((queues.CreateQueue, queues.ConfigureQueue, queues.TagQueue), "admin"),
    **dict.fromkeys((queues.DeleteQueue, queues.PurgeQueue, queues.StartMove, queues.CancelMove), "admin"),
    **dict.fromkeys((jobs.DefineJobs, jobs.RemoveJobType, jobs.KeepJobs), "admin"),
    **dict.fromkeys(
        (subscriptions.DescribeSubscription, subscriptions.ListSubscriptions, subscriptions.ListAdvertisements), _ANY
    ),
    **dict.fromkeys((queues.DescribeQueue, queues.ListQueues, queues.ListSources, queues.ListMoves), _ANY),
    **dict.fromkeys((jobs.DescribeJob, jobs.ListJobs, jobs.DescribeJobType, jobs.ListJobTypes), _ANY),
}
_BELONG_TO_SUBSCRIPTIONS = (
    subscriptions.Publish,
    subscriptions.Subscribe,
    subscriptions.Unsubscribe,
    subscriptions.Advertise,
    subscriptions.Unadvertise,
    subscriptions.DescribeSubscription,
    subscriptions.ListSubscriptions,
    subscriptions.ListAdvertisements,
)
OF_THE_SERVER = (
    jobs.DefineJobs,
    jobs.RemoveJobType,
    jobs.KeepJobs,
    jobs.SubmitJob,
    jobs.LeaseTasks,
    jobs.CompleteTask,
    jobs.FailTask,
    jobs.ExtendTask,
    jobs.CancelJob,
    jobs.DescribeJob,
    jobs.ListJobs,
    jobs.DescribeJobType,
    jobs.ListJobTypes,
    queues.CancelMove,
)
"""Named by numbers, or by names that are in no namespace."""


def place(principal: Principal, request: Request) -> Request:
    """The request in the principal's namespace; the very same one if nothing has to change. Raises `AccessDenied`."""
    kind = type(request)
    scope = _SCOPES.get(kind)
    if scope is None:
        raise AccessDenied(f"{kind.__name__} is for the server itself, not for its clients")
    if scope != _ANY and scope not in principal.scopes:
        raise AccessDenied(
            f"{kind.__name__} needs a key with the scope {scope}; key {principal.name!r} does not have it"
        )
    if principal.is_operator:
        return request
    if kind in OF_THE_SERVER:
        if principal.namespace:
            raise AccessDenied(
                f"{kind.__name__} concerns the server as a whole, jobs are in the default namespace only; key "
                f"{principal.name!r} is bound to the namespace {principal.namespace!r}, use one without"
            )
        return request
    placed: Request = _PLACES[kind](principal, request)
    return placed


def check_rate(principal: Principal, request: Request, now_s: float) -> None:
    """Raises if the principal publishes more than it may."""
    if principal.bucket is None or type(request) is not subscriptions.Publish:
        return
    wait_s = principal.bucket.take(len(request.publications), now_s)
    if wait_s:
        raise Overloaded(
            f"key {principal.name!r} may publish {principal.bucket.rate_per_s:g} publications a second; "
            f"publish again in {wait_s:g} s"
        )


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _queue(principal: Principal, name: str) -> str:
    if NAMESPACE_END in name:
        raise AccessDenied(
            f"key {principal.name!r} reaches the queues of its own namespace only, by their names alone; "
            f"got {name[:80]!r}"
        )
    return in_namespace(principal.namespace, name)


def _config(principal: Principal, config: QueueConfig) -> QueueConfig:
    if config.dead_letters is None:
        return config
    return replace(config, dead_letters=_queue(principal, config.dead_letters))


def _place_queue(principal: Principal, request: Any) -> Any:
    name = _queue(principal, request.queue)
    return request if name == request.queue else replace(request, queue=name)


def _place_config(principal: Principal, request: queues.CreateQueue | queues.ConfigureQueue) -> Any:
    config = _config(principal, request.config)
    return replace(request, queue=_queue(principal, request.queue), config=config)


def _place_list(principal: Principal, request: queues.ListQueues) -> queues.ListQueues:
    if not principal.namespace:
        return replace(request, is_outside=True)
    return replace(
        request,
        prefix=in_namespace(principal.namespace, request.prefix),
        after=in_namespace(principal.namespace, request.after),
    )


def _place_move(principal: Principal, request: queues.StartMove) -> queues.StartMove:
    destination = None if request.destination is None else _queue(principal, request.destination)
    return replace(request, source=_queue(principal, request.source), destination=destination)


def _place_source(principal: Principal, request: queues.ListMoves) -> queues.ListMoves:
    return replace(request, source=_queue(principal, request.source))


def _place_namespace(principal: Principal, request: Any) -> Any:
    """It may say its own namespace, or none."""
    if request.namespace == principal.namespace:
        return request
    if request.namespace:
        raise AccessDenied(
            f"key {principal.name!r} is not of the namespace {request.namespace[:40]!r}; leave the namespace out"
        )
    return replace(request, namespace=principal.namespace)


def _place_subscribe(principal: Principal, request: subscriptions.Subscribe) -> subscriptions.Subscribe:
    placed: subscriptions.Subscribe = _place_namespace(principal, request)
    config = _config(principal, request.config)
    return placed if config is request.config else replace(placed, config=config)


def _place_publish(principal: Principal, request: subscriptions.Publish) -> subscriptions.Publish:
    """Keys of requests are of a namespace too: nobody learns what others were answered."""
    placed: subscriptions.Publish = _place_namespace(principal, request)
    if not placed.key:
        return placed
    return replace(
        placed, key=in_namespace(principal.namespace, blake2b(placed.key.encode(), digest_size=32).hexdigest())
    )


_PLACES: dict[type, _Place] = {
    **dict.fromkeys(_BELONG_TO_SUBSCRIPTIONS, _place_namespace),
    **dict.fromkeys(
        (
            queues.TagQueue,
            queues.DeleteQueue,
            queues.PurgeQueue,
            queues.Send,
            queues.Receive,
            queues.Acknowledge,
            queues.ChangeVisibility,
            queues.Release,
            queues.DescribeQueue,
            queues.ListSources,
            queues.Peek,
        ),
        _place_queue,
    ),
    queues.CreateQueue: _place_config,
    queues.ConfigureQueue: _place_config,
    queues.ListQueues: _place_list,
    queues.StartMove: _place_move,
    queues.ListMoves: _place_source,
    subscriptions.Subscribe: _place_subscribe,
    subscriptions.Publish: _place_publish,
}

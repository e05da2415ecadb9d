"""The door: every request of every protocol passes here, is placed in the namespace of its principal, or denied.

    request ──authorize──► the same request, in the principal's namespace ──► broker ──shown──► answer

| scope | lets |
| --- | --- |
| publish | publish, advertise, send to queues, submit and cancel jobs |
| subscribe | subscribe and unsubscribe; receive, acknowledge and look into queues; do the tasks of jobs |
| admin | create, set, purge and delete queues; move messages; define jobs |

Whoever has any of them may list and describe. An operator, who has no namespace and the scope admin, names queues of
namespaces as `namespace/queue`; all others reach only their own. Jobs and topics belong to the server as a whole, so
they are for keys without a namespace, for now. `lavant.service.auth.namespaces` takes the namespace out of answers.

`RULES` says of every request which scope it needs, how it is placed, and whether it is one of the many that carry data.
A request without a rule cannot be imported, one of the server's own is denied to everybody.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from lavant.broker.protocol import jobs, queues, subscriptions
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import NAMESPACE_END, QueueConfig
from lavant.broker.queues.validation import refusal
from lavant.broker.subscriptions.registry import in_namespace
from lavant.core.errors import AccessDenied, LavantError, Overloaded
from lavant.service.auth.audit.log import AuditLog
from lavant.service.auth.audit.records import ORIGIN
from lavant.service.auth.keys import Principal
from lavant.service.auth.namespaces import shown
from lavant.service.net.connections import RequestConnection


class Execute(Protocol):
    """Has the broker carry out a request for a principal. A receive that waits ends when the principal is revoked. If
    it came over a connection that is lost, `ClientGone` is raised, and whatever it leased goes back."""

    def __call__(
        self, request: Request, principal: Principal, connection: RequestConnection | None = None, /
    ) -> Awaitable[Answer]: ...


_Place: TypeAlias = Callable[[Principal, Any], Any]

_A = TypeVar("_A")

ANY_SCOPE = ""


async def carry_out(
    execute: Execute,
    principal: Principal,
    request: Request,
    connection: RequestConnection | None = None,
    *,
    audit: AuditLog | None = None,
) -> Answer:
    """The answer to a request, as the principal sees it; a refusal if it may not ask that."""
    answer: Answer | None = None
    try:
        placed = authorize(principal, request, time.monotonic())
    except LavantError as error:
        return tell(audit, principal, request, refusal(error))
    try:
        answer = await execute(placed, principal, connection)
    finally:  # also if nobody waits for the answer any more
        tell(audit, principal, request, answer)
    if principal.is_revoked:
        return await _withheld(execute, principal, placed, answer)
    return shown(principal, answer)


def tell(audit: AuditLog | None, principal: Principal, request: Request, answer: _A) -> _A:
    """The audit log, if there is one, of a request and its answer."""
    if audit is not None:
        audit.answered(principal, ORIGIN.get(), request, answer)
    return answer


def authorize(principal: Principal, request: Request, now_s: float) -> Request:
    """The request in the principal's namespace; raises if it may not ask that, or not so often."""
    if principal.is_revoked:
        raise shut_out(principal)
    placed = place(principal, request)
    principal.tenant.check_request(now_s)
    check_rate(principal, request, now_s)
    return placed


def place(principal: Principal, request: Request) -> Request:
    """The request in the principal's namespace; the very same one if nothing has to change. Raises `AccessDenied`."""
    kind = type(request)
    rule = RULES.get(kind)
    if rule is None:
        raise AccessDenied(f"{kind.__name__} is for the server itself, not for its clients")
    if rule.scope != ANY_SCOPE and rule.scope not in principal.scopes:
        raise AccessDenied(
            f"{kind.__name__} needs a key with the scope {rule.scope}; key {principal.name!r} does not have it"
        )
    if principal.is_operator:
        return request
    placed: Request = rule.place(principal, request)
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


def shut_out(principal: Principal) -> AccessDenied:
    return AccessDenied(f"key {principal.name!r} was changed or removed")


async def _withheld(execute: Execute, principal: Principal, placed: Request, answer: Answer) -> Answer:
    """The key was revoked while the answer was on its way: no message leaves, and whatever was leased goes back."""
    if isinstance(answer, queues.Received) and answer.deliveries and isinstance(placed, queues.Receive):
        receipts = [each.receipt for each in answer.deliveries]
        await execute(queues.Release(placed.queue, receipts), principal)
    return refusal(shut_out(principal))


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
        is_outside=False,
    )


def _place_move(principal: Principal, request: queues.StartMove) -> queues.StartMove:
    destination = None if request.destination is None else _queue(principal, request.destination)
    source = _queue(principal, request.source)
    return replace(request, source=source, destination=destination, namespace=principal.namespace)


def _place_cancel(principal: Principal, request: queues.CancelMove) -> queues.CancelMove:
    """A move is named by a number, which says nothing of its namespace: the broker looks at that."""
    return replace(request, namespace=principal.namespace)


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


def _of_the_server(principal: Principal, request: Any) -> Any:
    """Named by numbers, or by names that are in no namespace."""
    if principal.namespace:
        raise AccessDenied(
            f"{type(request).__name__} concerns the server as a whole, jobs are in the default namespace only; key "
            f"{principal.name!r} is bound to the namespace {principal.namespace!r}, use one without"
        )
    return request


# ── the rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Rule(msgspec.Struct, frozen=True):
    scope: str
    place: _Place
    is_data: bool = False
    """One of many: messages, publications, tasks, and questions. All others are administration."""


RULES: dict[type, Rule] = {
    subscriptions.Publish: Rule("publish", _place_publish, is_data=True),
    subscriptions.Advertise: Rule("publish", _place_namespace),
    subscriptions.Unadvertise: Rule("publish", _place_namespace),
    subscriptions.Subscribe: Rule("subscribe", _place_subscribe),
    subscriptions.Unsubscribe: Rule("subscribe", _place_namespace),
    subscriptions.RenewSubscription: Rule("subscribe", _place_namespace, is_data=True),
    subscriptions.DescribeSubscription: Rule(ANY_SCOPE, _place_namespace, is_data=True),
    subscriptions.ListSubscriptions: Rule(ANY_SCOPE, _place_namespace, is_data=True),
    subscriptions.ListAdvertisements: Rule(ANY_SCOPE, _place_namespace, is_data=True),
    queues.Send: Rule("publish", _place_queue, is_data=True),
    queues.Receive: Rule("subscribe", _place_queue, is_data=True),
    queues.Acknowledge: Rule("subscribe", _place_queue, is_data=True),
    queues.ChangeVisibility: Rule("subscribe", _place_queue, is_data=True),
    queues.Release: Rule("subscribe", _place_queue, is_data=True),
    queues.Peek: Rule("subscribe", _place_queue),
    queues.CreateQueue: Rule("admin", _place_config),
    queues.ConfigureQueue: Rule("admin", _place_config),
    queues.TagQueue: Rule("admin", _place_queue),
    queues.DeleteQueue: Rule("admin", _place_queue),
    queues.PurgeQueue: Rule("admin", _place_queue),
    queues.StartMove: Rule("admin", _place_move),
    queues.CancelMove: Rule("admin", _place_cancel),
    queues.DescribeQueue: Rule(ANY_SCOPE, _place_queue, is_data=True),
    queues.ListQueues: Rule(ANY_SCOPE, _place_list, is_data=True),
    queues.ListSources: Rule(ANY_SCOPE, _place_queue, is_data=True),
    queues.ListMoves: Rule(ANY_SCOPE, _place_source, is_data=True),
    jobs.DefineJobs: Rule("admin", _of_the_server),
    jobs.RemoveJobType: Rule("admin", _of_the_server),
    jobs.KeepJobs: Rule("admin", _of_the_server),
    jobs.SubmitJob: Rule("publish", _of_the_server, is_data=True),
    jobs.CancelJob: Rule("publish", _of_the_server),
    jobs.LeaseTasks: Rule("subscribe", _of_the_server, is_data=True),
    jobs.CompleteTask: Rule("subscribe", _of_the_server, is_data=True),
    jobs.FailTask: Rule("subscribe", _of_the_server, is_data=True),
    jobs.ExtendTask: Rule("subscribe", _of_the_server, is_data=True),
    jobs.DescribeJob: Rule(ANY_SCOPE, _of_the_server, is_data=True),
    jobs.ListJobs: Rule(ANY_SCOPE, _of_the_server, is_data=True),
    jobs.DescribeJobType: Rule(ANY_SCOPE, _of_the_server, is_data=True),
    jobs.ListJobTypes: Rule(ANY_SCOPE, _of_the_server, is_data=True),
}
OWN = (queues.Open, queues.FanOut, queues.MoveSome, subscriptions.Deliver, jobs.ReleaseTasks)
"""The server's own: in its journal, and for no client."""


DATA = frozenset(kind for kind, rule in RULES.items() if rule.is_data)


def _check_complete() -> None:
    declared, decided = set(get_args(Request)), {*RULES, *OWN}
    if declared != decided or len(decided) != len(RULES) + len(OWN):
        names = sorted(kind.__name__ for kind in declared ^ decided)
        raise TypeError(f"every request has one rule in RULES, or is in OWN; look at {', '.join(names)}")


_check_complete()

"""Authorisation of every request of every protocol.

    request ──authorize──► the same request, in the principal's namespace ──► broker ──strip──► answer

`lavant.broker.protocol.registry` declares the scope and the namespace rule of each request; the server's own commands
are denied to every key. An operator, a key with the scope admin and no namespace, names queues of namespaces as
`namespace/queue`; all other keys reach only their own namespace. Jobs and topics belong to the server as a whole, so
they are for keys without a namespace, for now.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Protocol, TypeVar

from lavant.broker.protocol import queues, subscriptions
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.registry import ANSWERS, REGISTRY, SERVER
from lavant.broker.queues.validation import refusal
from lavant.core.errors import AccessDenied, LavantError, Overloaded
from lavant.service.auth.audit.log import ORIGIN, AuditLog
from lavant.service.auth.keys import Principal
from lavant.service.net.connections import RequestConnection

_A = TypeVar("_A")


class Execute(Protocol):
    """Executes a request for a principal. A long poll ends when the principal is revoked. If the connection of the
    request is lost, `ClientGone` is raised, and the messages that it leased are released."""

    def __call__(
        self, request: Request, principal: Principal, connection: RequestConnection | None = None, /
    ) -> Awaitable[Answer]: ...


async def execute_as(
    execute: Execute,
    principal: Principal,
    request: Request,
    connection: RequestConnection | None = None,
    *,
    audit: AuditLog | None = None,
) -> Answer:
    """Authorise and execute a request; the answer has no names of other namespaces."""
    answer: Answer | None = None
    try:
        authorized = authorize(principal, request, time.monotonic())
    except LavantError as error:
        return audited(audit, principal, request, refusal(error))
    try:
        answer = await execute(authorized, principal, connection)
    finally:  # also if the client does not wait for the answer any more
        audited(audit, principal, request, answer)
    if principal.is_revoked:
        return await _withhold(execute, principal, authorized, answer)
    return strip(principal, answer)


def audited(audit: AuditLog | None, principal: Principal, request: Request, answer: _A) -> _A:
    """The answer, after the audit log has recorded it."""
    if audit is not None:
        audit.answered(principal, ORIGIN.get(), request, answer)
    return answer


def authorize(principal: Principal, request: Request, now_s: float) -> Request:
    """The request in the principal's namespace; raises if the principal lacks the scope, or exceeds its rate."""
    if principal.is_revoked:
        raise revoked(principal)
    authorized = in_namespace(principal, request)
    principal.tenant.check_request(now_s)
    check_rate(principal, request, now_s)
    return authorized


def in_namespace(principal: Principal, request: Request) -> Request:
    """The request in the principal's namespace; the same object if nothing changes. Raises `AccessDenied`."""
    declaration = REGISTRY[type(request)]
    if principal.is_broker:
        raise AccessDenied(
            f"key {principal.name!r} is for links between brokers; {declaration.name} needs one for clients"
        )
    scope = declaration.scope
    if scope and scope not in principal.scopes:
        if scope == SERVER:
            raise AccessDenied(f"{declaration.name} is for the server itself, not for its clients")
        raise AccessDenied(
            f"{declaration.name} needs a key with the scope {scope}; key {principal.name!r} does not have it"
        )
    if principal.is_operator:
        return request
    authorized: Request = declaration.rule(principal, request)
    return authorized


def strip(principal: Principal, answer: Answer) -> Answer:
    """The answer without the principal's namespace, and without names of other namespaces."""
    if principal.is_operator:
        return answer
    stripped: Answer = ANSWERS[type(answer)](principal.namespace, answer)
    return stripped


def check_rate(principal: Principal, request: Request, now_s: float) -> None:
    """Raises if the principal exceeds its rate of publications."""
    if principal.bucket is None or type(request) is not subscriptions.Publish:
        return
    wait_s = principal.bucket.take(len(request.publications), now_s)
    if wait_s:
        raise Overloaded(
            f"key {principal.name!r} may publish {principal.bucket.rate_per_s:g} publications a second; "
            f"publish again in {wait_s:g} s"
        )


def revoked(principal: Principal) -> AccessDenied:
    return AccessDenied(f"key {principal.name!r} was changed or removed")


async def _withhold(execute: Execute, principal: Principal, authorized: Request, answer: Answer) -> Answer:
    """The key was revoked during the request: no message leaves, and leased messages are released."""
    if isinstance(answer, queues.Received) and answer.deliveries and isinstance(authorized, queues.Receive):
        receipts = [each.receipt for each in answer.deliveries]
        await execute(queues.Release(authorized.queue, receipts), principal)
    return refusal(revoked(principal))

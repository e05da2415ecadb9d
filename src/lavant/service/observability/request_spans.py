"""Spans of the server: one for each publish, send, submission and relay that belongs to a trace, and one for each job.

The server continues traces and begins none, so that clients decide what is sampled. A span lasts from the request to
its durable answer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lavant import tracing
from lavant.broker.federation.effects import RelayPublications
from lavant.broker.machine.effects import Reply
from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.jobs import SubmitJob
from lavant.broker.protocol.queues import Refused, Send, Sent
from lavant.broker.protocol.subscriptions import Publish, Published
from lavant.broker.workflows.job import FAILED, Job
from lavant.core.publications.trace_context import TraceContext, of_message, of_publication, trace_context

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from lavant.service.runtime.broker_runtime import RuntimeClient

CONTEXTS_MAX = 64
"""Publications or messages of one request whose traces are looked up."""

_logger = logging.getLogger(__name__)


class TracedClient:
    """A client whose request has a span, which ends with the reply."""

    __slots__ = ("_client", "_span")

    def __init__(self, client: RuntimeClient, span: Span) -> None:
        self._client = client
        self._span = span

    def reply(self, reply: Reply) -> None:
        tracing.fail(self._span, _refusal(reply.answer))
        self._span.end()
        self._client.reply(reply)


def traced(client: RuntimeClient, request: Request) -> RuntimeClient:
    """The client to answer: the same, unless the request has a span."""
    match request:
        case Publish():
            span = tracing.serving(
                "publish", "", _of_publications(request.publications), count=len(request.publications)
            )
        case Send():
            span = tracing.serving("send", request.queue, _of_messages(request), count=len(request.entries))
        case SubmitJob():
            span = tracing.serving("submit", request.job_type, [trace_context(*request.trace)])
        case _:
            return client
    return client if span is None else TracedClient(client, span)


def relaying(relay: RelayPublications) -> RelayPublications:
    """The relay with the connection to answer: the same, unless the publications of a neighbouring broker have a span,
    which lasts until they are durable here."""
    bodies = [relay.batch.bodies[index] for index in relay.indexes]
    span = tracing.serving("relay", "", _of_publications(bodies), count=len(bodies))
    if span is None:
        return relay
    span.set_attribute("lavant.neighbour", relay.neighbour)
    return replace(relay, connection=TracedClient(relay.connection, span))


def job_ended(job: Job, state: str, reason: str, ended_ms: int) -> None:
    """Records the span of a job, from its submission to its end. Called within a step of the broker, so it must not
    raise."""
    if not job.trace.parent:
        return
    attributes: dict[str, str | int] = {
        "lavant.job.number": job.number,
        "lavant.job.type": job.type.name,
        "lavant.job.state": state,
    }
    try:
        tracing.record(
            f"job {job.type.name}",
            job.trace,
            start_ms=job.submitted_ms,
            end_ms=ended_ms,
            failure=reason if state == FAILED else "",
            attributes=attributes,
        )
    except Exception:
        _logger.exception("the span of job %d was not recorded", job.number)


def _of_publications(bodies: list[bytes]) -> Iterator[TraceContext]:
    return (of_publication(body) for body in bodies[:CONTEXTS_MAX])


def _of_messages(request: Send) -> Iterator[TraceContext]:
    return (of_message(entry.attributes) for entry in request.entries[:CONTEXTS_MAX])


def _refusal(answer: Any) -> str:
    """Why the request failed; empty if at least a part of it did not."""
    if isinstance(answer, Refused):
        return f"{answer.code}: {answer.reason}"
    if isinstance(answer, Published | Sent) and answer.entries:
        refused = [each for each in answer.entries if isinstance(each, Refused)]
        return _refusal(refused[0]) if len(refused) == len(answer.entries) else ""
    return ""

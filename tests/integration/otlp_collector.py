"""A collector of OpenTelemetry's spans: takes them over HTTP, as OTLP sends them, and keeps them."""

from __future__ import annotations

import time
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from tests.integration.serving import WAIT_S_MAX
from tests.integration.webhook_receiver import Got, Receiver, Reply


class CollectedSpan(NamedTuple):
    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    """Ids of spans."""
    is_failed: bool
    attributes: dict[str, str | int]
    seconds: float


class Collector(Receiver):
    """Listens at a free port of this machine."""

    def __init__(self) -> None:
        self._spans: list[CollectedSpan] = []
        super().__init__(self._take)

    def _take(self, got: Got, number: int) -> Reply:
        for resource in ExportTraceServiceRequest.FromString(got.body).resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self._spans += [_collected(named["service.name"], each) for each in scope.spans]
        return Reply(200)

    def wait_for_trace(self, trace: str, count: int) -> list[CollectedSpan]:
        """The spans of a trace, when there are so many."""
        deadline_s = time.monotonic() + WAIT_S_MAX
        while len(found := [each for each in self._spans if each.trace == trace]) < count:
            assert time.monotonic() < deadline_s, f"{len(found)} of {count} spans: {found}"
            time.sleep(0.02)
        return found


def _collected(service: str, span: SpanMessage) -> CollectedSpan:
    values = ((each.key, each.value) for each in span.attributes)
    return CollectedSpan(
        service,
        span.name,
        SpanMessage.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple(link.span_id.hex() for link in span.links),
        span.status.code == 2,
        {key: value.string_value if value.HasField("string_value") else value.int_value for key, value in values},
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
    )

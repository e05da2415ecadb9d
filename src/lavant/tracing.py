"""Spans of OpenTelemetry, for clients, workers and the server.

Without OpenTelemetry nothing is imported, and each call is one lookup in `sys.modules`. A program that imports
OpenTelemetry has spans; `lavant serve` and `lavant worker` import it if its environment variables ask for it
(`configure`). Names and attributes follow the semantic conventions for messaging.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from lavant.core.errors import InvalidValue, LavantError
from lavant.core.packages import named_extras
from lavant.core.publications.trace_context import NO_TRACE, TraceContext, of_headers

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Link, Span, Tracer

PRODUCER, CONSUMER, CLIENT = "PRODUCER", "CONSUMER", "CLIENT"
"""Kinds of spans."""
OTLP, CONSOLE, NONE = "otlp", "console", "none"
_EXPORTER = "OTEL_TRACES_EXPORTER"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP = "http/protobuf"

_MODULE: Final = "opentelemetry.trace"
_NO_SPAN: AbstractContextManager[None] = nullcontext()
_logger = logging.getLogger(__name__)


def is_on() -> bool:
    """Whether this program uses OpenTelemetry."""
    return _MODULE in sys.modules


def current() -> TraceContext:
    """The context of the current span."""
    if _MODULE not in sys.modules:
        return NO_TRACE
    from opentelemetry import propagate  # noqa: PLC0415

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return of_headers(carrier)


def producing(operation: str, destination: str = "", *, count: int = 1) -> AbstractContextManager[Span | None]:
    """The span of a client that publishes, sends or submits; a child of the current span."""
    if _MODULE not in sys.modules:
        return _NO_SPAN
    return _current_span(_name(operation, destination), PRODUCER, None, _messaging(operation, destination, count))


def processing(destination: str, context: TraceContext) -> AbstractContextManager[Span | None]:
    """The span of a handler: a child of the span that sent the message, and linked to it."""
    if _MODULE not in sys.modules:
        return _NO_SPAN
    attributes = _messaging("process", destination)
    return _current_span(_name("process", destination), CONSUMER, context, attributes, _links([context]))


def calling(name: str, context: TraceContext) -> AbstractContextManager[Span | None]:
    """The span of a request to another server. Without a context, none is made."""
    if _MODULE not in sys.modules or not context.parent:
        return _NO_SPAN
    return _current_span(name, CLIENT, context, {})


def serving(operation: str, destination: str, contexts: Iterable[TraceContext], *, count: int = 1) -> Span | None:
    """Starts the span of a request to the server: a child of the first context, and linked to the others. Without a
    context, none is made. The caller ends it."""
    first, *others = [*dict.fromkeys(each for each in contexts if each.parent)] or [NO_TRACE]
    if _MODULE not in sys.modules or not first.parent:
        return None
    from opentelemetry import propagate, trace  # noqa: PLC0415

    parent = propagate.extract(first.headers())
    attributes = _messaging(operation, destination, count)
    return _tracer().start_span(
        _name(operation, destination), parent, trace.SpanKind.SERVER, attributes, links=_links(others)
    )


def record(
    name: str, context: TraceContext, *, start_ms: int, end_ms: int, failure: str, attributes: Mapping[str, str | int]
) -> None:
    """Records a span that is over, between two times in milliseconds since 1970. `failure` is empty if it succeeded."""
    from opentelemetry import propagate, trace  # noqa: PLC0415

    parent = propagate.extract(context.headers())
    span = _tracer().start_span(name, parent, trace.SpanKind.INTERNAL, attributes, start_time=start_ms * 1_000_000)
    fail(span, failure)
    span.end(end_ms * 1_000_000)


def fail(span: Span | None, reason: str) -> None:
    """Marks a span as failed, unless the reason is empty."""
    if span is not None and reason:
        from opentelemetry import trace  # noqa: PLC0415

        span.set_status(trace.StatusCode.ERROR, reason)


# ── the SDK ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def configure(service: str) -> None:
    """Sets up OpenTelemetry's SDK as its environment variables say, unless the program has done so. Without these
    variables nothing happens. What they ask for and cannot be had is logged: nothing fails for want of spans."""
    if not _is_wanted(os.environ):
        return
    try:
        _set_up(service)
    except LavantError as error:
        _logger.warning("there are no spans: %s", error)


def _is_wanted(variables: Mapping[str, str]) -> bool:
    """
    >>> _is_wanted({}), _is_wanted({"OTEL_TRACES_EXPORTER": "none"}), _is_wanted({"OTEL_TRACES_EXPORTER": "console"})
    (False, False, True)
    >>> _is_wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
    True
    """
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = variables.get(_EXPORTER, "").strip()
    return exporter != NONE if exporter else any(variables.get(name) for name in _ENDPOINTS)


def _set_up(service: str) -> None:
    with named_extras():
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        if isinstance(trace.get_tracer_provider(), TracerProvider):
            return  # `opentelemetry-instrument`, say
        exporter = _exporter(os.environ)
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create({**named, "service.version": version("lavant")}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _exporter(variables: Mapping[str, str]) -> SpanExporter:
    wanted = variables.get(_EXPORTER, "").strip() or OTLP
    if wanted == CONSOLE:
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter  # noqa: PLC0415

        return ConsoleSpanExporter(out=sys.stderr)
    if wanted != OTLP:
        raise InvalidValue(f"{_EXPORTER} must be {OTLP}, {CONSOLE} or {NONE}, got {wanted!r}")
    protocol = next((variables[name] for name in _PROTOCOLS if variables.get(name)), _HTTP)
    if protocol != _HTTP:
        raise InvalidValue(f"{_PROTOCOLS[1]} must be {_HTTP}, got {protocol!r}; collectors take it at port 4318")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    return OTLPSpanExporter()


# ── private ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _current_span(
    name: str,
    kind: str,
    context: TraceContext | None,
    attributes: Mapping[str, str | int],
    links: list[Link] | None = None,
) -> Iterator[Span]:
    """A span that is current inside. It continues the context; None is that of the current span."""
    from opentelemetry import propagate, trace  # noqa: PLC0415

    parent = propagate.extract(context.headers()) if context is not None and context.parent else None
    with _tracer().start_as_current_span(name, parent, trace.SpanKind[kind], attributes, links) as started:
        yield started


def _tracer() -> Tracer:
    from opentelemetry import trace  # noqa: PLC0415

    return trace.get_tracer("lavant", version("lavant"))


def _links(contexts: Iterable[TraceContext]) -> list[Link]:
    from opentelemetry import propagate, trace  # noqa: PLC0415

    found = [trace.get_current_span(propagate.extract(each.headers())) for each in contexts if each.parent]
    return [trace.Link(each.get_span_context()) for each in found]


def _name(operation: str, destination: str) -> str:
    return f"{operation} {destination}" if destination else operation


def _messaging(operation: str, destination: str, count: int = 1) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": "lavant",
        "messaging.operation.name": operation,
        "messaging.operation.type": "process" if operation == "process" else "send",
    }
    if destination:
        attributes["messaging.destination.name"] = destination
    if count != 1:
        attributes["messaging.batch.message_count"] = count
    return attributes

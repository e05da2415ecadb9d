"""Spans: which variables ask for them, and what they refuse."""

from __future__ import annotations

import pytest

from lavant import tracing
from lavant.core.errors import InvalidValue
from lavant.core.publications.trace_context import NO_TRACE, TraceContext

CONTEXT = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


def test_without_opentelemetry_there_is_no_span_and_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_MODULE", "a module that nobody has imported")
    with tracing.producing("send", "q") as sent, tracing.processing("q", CONTEXT) as processed:
        assert sent is processed is None
    with tracing.calling("POST", CONTEXT) as called:
        assert called is None
    assert tracing.serving("send", "q", [CONTEXT]) is None
    assert (tracing.is_on(), tracing.current()) == (False, NO_TRACE)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER must be otlp, console or none, got 'zipkin'"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "must be http/protobuf, got 'grpc'; collectors take it at port 4318"),
    ],
)
def test_an_exporter_that_is_not_there_is_refused(variables: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        tracing._exporter(variables)


@pytest.mark.parametrize(
    ("variables", "is_wanted"),
    [
        ({}, False),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_only_its_own_variables_ask_for_spans(variables: dict[str, str], is_wanted: bool) -> None:
    assert tracing._is_wanted(variables) is is_wanted

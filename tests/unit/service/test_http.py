"""The one HTTP application: health, metrics, and the rest to SQS."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from lavant.service.http import HttpApplication
from lavant.service.openmetrics import Family, openmetrics


async def sqs(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"sqs"})


def ask(method: str, path: str, *, fault: str | None = None) -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[MutableMapping[str, Any]] = []

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("there is no body to be read")

    application = HttpApplication(health=lambda: fault, metrics=lambda: "# EOF\n", sqs=sqs)
    asyncio.run(application({"type": "http", "method": method, "path": path}, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_a_server_that_works_is_healthy() -> None:
    status, _, body = ask("GET", "/healthz")
    assert (status, body) == (200, b"ok\n")


def test_a_server_that_failed_says_so() -> None:
    status, _, body = ask("GET", "/healthz", fault="the disk failed")
    assert (status, body) == (503, b"the disk failed\n")


def test_metrics_have_the_content_type_of_openmetrics() -> None:
    status, headers, body = ask("GET", "/metrics")
    assert (status, body) == (200, b"# EOF\n")
    assert headers[b"content-type"] == b"application/openmetrics-text; version=1.0.0; charset=utf-8"


def test_head_has_the_length_and_no_body() -> None:
    _, headers, body = ask("HEAD", "/metrics")
    assert (headers[b"content-length"], body) == (b"6", b"")


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/"), ("POST", "/metrics"), ("GET", "/000000000000/q"), ("GET", "/")]
)
def test_everything_else_is_sqs(method: str, path: str) -> None:
    assert ask(method, path)[0] == 299


def test_openmetrics_text_is_as_the_standard_wants_it() -> None:
    families = [
        Family("a", "counter", "Count.", [({}, 3)]),
        Family("b_bytes", "gauge", 'Say "b"\\', [({"queue": 'x"\\\n'}, 1.5), ({"queue": "y"}, 0)], unit="bytes"),
    ]
    assert openmetrics(families) == (
        "# TYPE a counter\n"
        "# HELP a Count.\n"
        "a_total 3\n"
        "# TYPE b_bytes gauge\n"
        "# UNIT b_bytes bytes\n"
        '# HELP b_bytes Say \\"b\\"\\\\\n'
        'b_bytes{queue="x\\"\\\\\\n"} 1.5\n'
        'b_bytes{queue="y"} 0\n'
        "# EOF\n"
    )

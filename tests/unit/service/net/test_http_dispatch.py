"""The one HTTP application: health, metrics, and the rest to SQS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest
from tests.unit.service.wiring import ready

from lavant.service.net.http_dispatch import OPERATIONS_PATHS, Application, HttpApplication, Operations
from lavant.service.observability.openmetrics import MetricFamily, openmetrics
from lavant.service.runtime.readiness import Readiness

SQS, API = 299, 298


def answering(status: int) -> Application:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return answer


async def metrics() -> bytes:
    return b"# EOF\n"


def ask(
    method: str,
    path: str,
    *,
    fault: str | None = None,
    key: str = "",
    shown: str = "",
    is_apart: bool = False,
    headers: list[tuple[bytes, bytes]] | None = None,
    readiness: Readiness | None = None,
) -> tuple[int, dict[bytes, bytes], bytes]:
    """`key` is wanted, `shown` is shown; the metrics may be on a port apart."""
    readiness = ready() if readiness is None else readiness
    sent: list[MutableMapping[str, Any]] = []

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("there is no body to be read")

    application = HttpApplication(
        operations=Operations(
            health=lambda: fault, readiness=readiness.reason, metrics=metrics, may_see=lambda secret: secret == key
        ),
        paths=OPERATIONS_PATHS - {"/metrics"} if is_apart else OPERATIONS_PATHS,
        api=answering(API),
        api_paths=frozenset({"/publish", "/subscriptions"}),
        sqs=answering(SQS),
        readiness=readiness,
    )
    path, _, query = path.partition("?")
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode()}
    scope["headers"] = [(b"authorization", b"Bearer " + shown.encode())] if shown else headers or []
    asyncio.run(application(scope, receive, send))
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
    ("method", "path", "status"),
    [
        ("POST", "/publish", API),
        ("GET", "/subscriptions", API),
        ("DELETE", "/subscriptions/a", API),
        ("POST", "/subscriptions/a/receive", API),
        ("GET", "/", API),
        ("HEAD", "/", API),
        ("GET", "/?Action=ListQueues", SQS),
        ("GET", "/000000000000/q?Action=ReceiveMessage", SQS),
        ("POST", "/?X-Amz-Signature=1", SQS),
        ("POST", "/", API),
        ("POST", "/metrics", 405),
        ("POST", "/metrics?Action=SendMessage", SQS),
        ("GET", "/000000000000/q", API),
        ("POST", "/publisher", API),
        ("DELETE", "/nowhere", API),
        ("POST", "", API),
    ],
)
def test_the_path_decides_who_answers(method: str, path: str, status: int) -> None:
    assert ask(method, path)[0] == status


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"x-amz-target", b"AmazonSQS.SendMessage"),
        (b"authorization", b"AWS4-HMAC-SHA256 Credential=a"),
        (b"content-type", b"application/x-amz-json-1.0"),
        (b"content-type", b"Application/x-www-form-urlencoded; charset=utf-8"),
    ],
)
def test_what_looks_like_sqs_goes_there(name: bytes, value: bytes) -> None:
    for path in ("/", "/000000000000/q", "/behind/a/proxy/000000000000/q"):
        assert ask("POST", path, headers=[(name, value)])[0] == SQS
    is_form = b"form" in value  # which curl sends to any path
    assert ask("POST", "/nowhere", headers=[(name, value)])[0] == (API if is_form else SQS)
    assert ask("POST", "/publish", headers=[(name, value)])[0] == API


def test_openmetrics_text_is_as_the_standard_wants_it() -> None:
    families = [
        MetricFamily("a", "counter", "Count.", [({}, 3)]),
        MetricFamily("b_bytes", "gauge", 'Say "b"\\', [({"queue": 'x"\\\n'}, 1.5), ({"queue": "y"}, 0)], unit="bytes"),
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


def test_metrics_with_a_key_are_for_those_who_show_it() -> None:
    assert ask("GET", "/metrics", key="k", shown="k")[0] == 200
    for shown in ("", "other", "k "):
        status, headers, body = ask("GET", "/metrics", key="k", shown=shown and shown + "x")
        assert status == 401
        assert headers[b"www-authenticate"] == b"Bearer"
        assert b"--metrics-key" in body
    assert ask("GET", "/healthz", key="k")[0] == 200


def test_metrics_on_a_port_of_their_own_are_not_on_the_others() -> None:
    assert ask("GET", "/metrics", is_apart=True)[0] == API
    assert ask("GET", "/healthz", is_apart=True)[0] == 200


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/metrics", 200), ("GET", "/publish", 404)])
def test_the_port_of_the_metrics_has_nothing_else(method: str, path: str, status: int) -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("there is no body to be read")

    scope = {"type": "http", "method": method, "path": path, "headers": []}
    asyncio.run(Operations(health=lambda: None, readiness=lambda: None, metrics=metrics)(scope, receive, send))
    assert sent[0]["status"] == status


# ── a server that is not ready ────────────────────────────────────────────────────────────────────────────────────────


def test_a_server_that_starts_lives_and_says_how_far_it_is() -> None:
    starting = Readiness(lambda: None)
    starting.starts_with("compiling kernels 12/31")
    assert ask("GET", "/healthz", readiness=starting)[::2] == (200, ask("GET", "/readyz", readiness=starting)[2])
    said = b"the server is starting: compiling kernels 12/31\n"
    assert ask("GET", "/readyz", readiness=starting)[::2] == (503, said)
    assert ask("GET", "/metrics", readiness=starting)[0] == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/publish"),
        ("GET", "/subscriptions"),
        ("POST", "/"),
        ("GET", "/"),
        ("GET", "/123/q"),
        ("GET", "/readyz/"),
    ],
)
def test_a_server_that_starts_asks_all_others_to_come_again(method: str, path: str) -> None:
    status, headers, body = ask(method, path, readiness=Readiness(lambda: None))
    assert (status, headers[b"retry-after"]) == (503, b"1")
    assert json.loads(body)["error"]["code"] == "NotReady"


def test_a_server_that_serves_is_ready_unless_something_is_wrong() -> None:
    faults: list[str] = []
    readiness = Readiness(lambda: faults[0] if faults else None)
    readiness.begin()
    assert ask("GET", "/readyz", readiness=readiness)[::2] == (200, b"ok\n")
    faults.append("Spark is starting")
    assert ask("GET", "/readyz", readiness=readiness)[::2] == (503, b"Spark is starting\n")
    assert ask("GET", "/healthz", readiness=readiness)[0] == 200
    assert ask("POST", "/publish", readiness=readiness)[0] == API, "it goes on with what it can do"


def test_a_server_that_stops_is_not_ready_and_answers_those_who_are_there() -> None:
    stopping = ready()
    stopping.stop()
    assert ask("GET", "/readyz", readiness=stopping)[::2] == (503, b"the server is stopping\n")
    assert ask("POST", "/publish", readiness=stopping)[0] == API

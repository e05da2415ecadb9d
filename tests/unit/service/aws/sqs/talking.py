"""Talking to the application without a network, and a broker that answers as it was told."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import botocore
from botocore.model import ServiceModel
from tests.unit.service.fake_connections import FakeConnection

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Described, QueueFigures
from lavant.service.auth.keys import Principal
from lavant.service.aws.sqs.app import SqsApp
from lavant.service.aws.sqs.settings import SqsSettings
from lavant.service.net.connections import STATE, RequestConnection

SETTINGS = SqsSettings(salt=b"salt")
QUEUE_URL = "http://queues.test/000000000000/orders"
FIFO_URL = QUEUE_URL + ".fifo"


class Script:
    """A broker that answers what it was told, by the type of the request, and remembers what it was asked."""

    def __init__(self, *answers: Answer | Callable[[Any], Answer]) -> None:
        self._answers = list(answers)
        self.asked: list[Request] = []

    async def execute(
        self, request: Request, principal: Principal | None = None, connection: RequestConnection | None = None
    ) -> Answer:
        self.asked.append(request)
        assert self._answers, f"nothing was prepared for {request}"
        answer = self._answers.pop(0)
        return answer(request) if callable(answer) else answer

    @property
    def is_over(self) -> bool:
        return not self._answers


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else {}

    @property
    def xml(self) -> ElementTree.Element:
        return ElementTree.fromstring(self.body)

    @property
    def code(self) -> str:
        """The error's code, as SDKs show it."""
        return self.headers["x-amzn-query-error"].partition(";")[0]


async def request(
    app: SqsApp,
    *,
    method: str = "POST",
    path: str = "/",
    query: str = "",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    chunk_bytes: int = 1 << 30,
) -> Response:
    """One HTTP request, its body in chunks; with the content type that SDKs send, unless another is given."""
    chunks = [body[start : start + chunk_bytes] for start in range(0, len(body), chunk_bytes)]
    messages = [
        {"type": "http.request", "body": chunk, "more_body": place < len(chunks) - 1}
        for place, chunk in enumerate(chunks)
    ]
    if not messages:
        messages.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[Any] = []

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        await asyncio.Event().wait()  # the client stays
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    given = {} if headers is None else {name.lower(): value for name, value in headers.items()}
    usual = "application/x-amz-json-1.0" if "x-amz-target" in given else "application/x-www-form-urlencoded"
    all_headers = {"host": "queues.test", "content-type": usual} | given
    scope = {
        "type": "http",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in all_headers.items()],
        "state": {STATE: FakeConnection()},
    }
    await app(scope, receive, send)
    start, content = sent
    return Response(
        start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, content["body"]
    )


def ask(broker: Script, action: str, settings: SqsSettings = SETTINGS, /, **members: Any) -> Response:
    """One action in the JSON protocol. Afterwards everything that was prepared must have been asked for."""
    response = asyncio.run(
        request(
            SqsApp(broker.execute, settings),
            headers={"x-amz-target": f"AmazonSQS.{action}", "content-type": "application/x-amz-json-1.0"},
            body=json.dumps(members).encode(),
        )
    )
    assert broker.is_over
    return response


def described(config: QueueConfig | None = None, /, **tags: str) -> Described:
    return Described(
        QueueConfig() if config is None else config,
        tags,
        created_ms=1_700_000_000_123,
        changed_ms=1_700_000_001_999,
        figures=QueueFigures(3, 2, 1, 600, 1_700_000_000_500, 9, 8, 4, 0, 0, 0, 0),
    )


@cache
def service_model() -> ServiceModel:
    """The specification: what the SDK of Amazon itself goes by."""
    path = Path(botocore.__file__).parent / "data" / "sqs" / "2012-11-05" / "service-2.json.gz"
    return ServiceModel(json.loads(gzip.decompress(path.read_bytes())), "sqs")

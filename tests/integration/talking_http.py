"""A client of the HTTP interface that shows everything it gets, good or bad."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from tests.integration.serving import WAIT_S_MAX, Served
from websockets.sync.client import ClientConnection, connect


def until(condition: Callable[[], bool]) -> None:
    """Wait for what comes soon, but not for ever."""
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@contextmanager
def websocket(served: Served, path: str, **options: Any) -> Iterator[ClientConnection]:
    url = f"ws://{served.host}:{served.port}{path}"
    with connect(url, proxy=None, open_timeout=WAIT_S_MAX, **options) as stream:
        yield stream


class Answered(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error."""
        code: str = self.json["error"]["code"]
        return code


class Talker:
    """One connection that is kept; it is opened anew if the server closed it."""

    def __init__(self, served: Served, key: str = "", *, context: ssl.SSLContext | None = None) -> None:
        self._usual = {"Accept": "*/*, text/event-stream"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._connection: http.client.HTTPConnection = (
            http.client.HTTPConnection(served.host, served.port, timeout=WAIT_S_MAX)
            if context is None
            else http.client.HTTPSConnection(served.host, served.port, timeout=WAIT_S_MAX, context=context)
        )

    def ask(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", **headers: str
    ) -> Answered:
        """Bodies that are no bytes are sent as JSON; headers are named with `_` for `-`."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None and kind:
            said["Content-Type"] = kind
        self._connection.request(method, path, data, {**self._usual, **said})
        response = self._connection.getresponse()
        return Answered(response.status, response.headers, response.read())

    def subscribe(self, name: str, filter: str, **more: Any) -> None:
        answered = self.ask("POST", "/subscriptions", {"name": name, "filter": filter, **more})
        assert answered.status == 201, answered

    def publish(self, *publications: dict[str, Any]) -> None:
        answered = self.ask("POST", "/publish", list(publications))
        assert (answered.status, answered.json["accepted"]) == (202, len(publications)), answered

    def receive(self, name: str, count: int = 10, wait_ms: int = 0, **more: Any) -> list[dict[str, Any]]:
        answered = self.ask("POST", f"/subscriptions/{name}/receive", {"count": count, "wait_ms": wait_ms, **more})
        assert answered.status == 200, answered
        messages: list[dict[str, Any]] = answered.json["messages"]
        return messages

    def acknowledge(self, name: str, messages: list[dict[str, Any]]) -> None:
        receipts = [message["receipt"] for message in messages]
        answered = self.ask("POST", f"/subscriptions/{name}/acknowledge", {"receipts": receipts})
        assert answered.json == {"acknowledged": len(receipts), "refused": []}, answered

    def drain(self, name: str) -> list[dict[str, Any]]:
        """All publications that can be had; they are acknowledged."""
        found = []
        while messages := self.receive(name, count=1000):
            self.acknowledge(name, messages)
            found += [message["publication"] for message in messages]
        return found

    def held(self, name: str) -> tuple[int, int]:
        """How many messages are visible, and in flight."""
        messages = self.ask("GET", f"/subscriptions/{name}").json["messages"]
        return messages["visible"], messages["in_flight"]

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Events:
    """A stream of server-sent events."""

    def __init__(self, served: Served, path: str, key: str = "", last: int | None = None) -> None:
        headers = {"Accept": "text/event-stream"} | ({"Authorization": f"Bearer {key}"} if key else {})
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        self._connection = http.client.HTTPConnection(served.host, served.port, timeout=WAIT_S_MAX)
        self._connection.request("GET", quote(path, safe="/?=&"), headers=headers)
        assert self._connection.sock is not None
        self.socket = self._connection.sock
        self.response = self._connection.getresponse()
        assert self.response.status == 200, self.response.read()

    def __iter__(self) -> Iterator[dict[str, str]]:
        """Events by field; comments are left out. Ends with the stream."""
        event: dict[str, str] = {}
        for line in self.response:
            text = line.decode().rstrip("\n")
            if text and not text.startswith(":"):
                name, _, value = text.partition(": ")
                event[name] = value
            elif not text and event:
                yield event
                event = {}

    def take(self, count: int) -> list[dict[str, str]]:
        events = iter(self)
        return [next(events) for _ in range(count)]

    def close(self) -> None:
        self.response.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

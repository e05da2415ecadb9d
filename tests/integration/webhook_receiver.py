"""A webhook that notes what it gets, and answers as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self

from tests.integration.serving import WAIT_S_MAX


class Got(NamedTuple):
    path: str
    headers: Message
    body: bytes


class Reply(NamedTuple):
    status: int = 204
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    after_s: float = 0.0


Decide = Callable[[Got, int], Reply]
"""What to answer to a request, which is so many'th."""


class Receiver:
    """Listens at a free port of this machine."""

    def __init__(self, decide: Decide = lambda got, number: Reply()) -> None:
        self.decide = decide
        self.got: list[Got] = []
        self.at_once_max = 0
        self._at_once = 0
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        got = Got(handler.path, handler.headers, body)
        with self._lock:
            self.got.append(got)
            number = len(self.got)
            self._at_once += 1
            self.at_once_max = max(self.at_once_max, self._at_once)
        reply = self.decide(got, number)
        time.sleep(reply.after_s)
        with self._lock:
            self._at_once -= 1
        try:
            handler.send_response(reply.status)
            for name, value in reply.headers:
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(reply.body)))
            handler.end_headers()
            handler.wfile.write(reply.body)
        except OSError:  # the other side did not wait
            handler.close_connection = True

    def wait_for(self, count: int) -> list[Got]:
        deadline_s = time.monotonic() + WAIT_S_MAX
        while len(self.got) < count:
            assert time.monotonic() < deadline_s, f"{len(self.got)} of {count} requests came"
            time.sleep(0.01)
        return self.got

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join(WAIT_S_MAX)
        self._server.server_close()

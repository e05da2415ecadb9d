"""Relays before a server: one that loses an answer, and a bad network between two brokers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Relay:
    """Relays connections between clients and a server; subclasses decide what passes."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"lavant://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._sockets:
            _end(each)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def passed(self, *, is_answer: bool) -> Callable[[bytes], bytes | None]:
        """For one direction of a new connection: what passes of each piece of data; None ends the connection."""
        raise NotImplementedError

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                for source, target, is_answer in ((client, server, False), (server, client, True)):
                    arguments = (source, target, self.passed(is_answer=is_answer))
                    self._threads.append(threading.Thread(target=self._relay, args=arguments))
                    self._threads[-1].start()

    def _relay(self, source: socket.socket, target: socket.socket, passed: Callable[[bytes], bytes | None]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                part = passed(data)
                if part is None:
                    break
                target.sendall(part)
                if len(part) < len(data):
                    break
        _end(source)
        _end(target)


class Forgetful(Relay):
    """On the first connection, the answer after the greeting's is lost, and the connection with it."""

    def __init__(self, host: str, port: int) -> None:
        self.lost = 0
        super().__init__(host, port)

    def passed(self, *, is_answer: bool) -> Callable[[bytes], bytes | None]:
        if self.lost or not is_answer:
            return lambda data: data
        answers = iter((True,))

        def first_only(data: bytes) -> bytes | None:
            if next(answers, False):
                return data
            self.lost += 1
            return None

        return first_only


class BadLink(Relay):
    """A bad network: it may hold back everything, or cut each connection after some bytes.

    What was held back never arrives; the connections stay open until then.
    """

    def __init__(self, host: str, port: int, *, cut_bytes: Callable[[], int] | None = None) -> None:
        self.connections = 0
        self._cut_bytes = cut_bytes
        self._passes = threading.Event()
        self._passes.set()
        super().__init__(host, port)

    def hold_back(self) -> None:
        self._passes.clear()

    def pass_on(self) -> None:
        """For connections made from now on."""
        self._passes.set()

    def stop_cutting(self) -> None:
        self._cut_bytes = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._passes.set()
        super().__exit__(kind, error, trace)

    def passed(self, *, is_answer: bool) -> Callable[[bytes], bytes | None]:
        self.connections += is_answer
        left = None if self._cut_bytes is None else self._cut_bytes()

        def part(data: bytes) -> bytes | None:
            nonlocal left
            if not self._passes.is_set():
                self._passes.wait()
                return None
            if left is None:
                return data
            if not left:
                return None
            cut = data[:left]
            left -= len(cut)
            return cut

        return part


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

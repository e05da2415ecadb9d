"""Relays before a server: one that loses an answer, and a bad network between two brokers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Forgetful:
    """Relays connections. On the first, the answer after the greeting's is lost, and the connection with it."""

    def __init__(self, host: str, port: int) -> None:
        self.lost = 0
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

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                self._start(client, server, answers_max=None)
                self._start(server, client, answers_max=None if self.lost else 1)

    def _start(self, source: socket.socket, target: socket.socket, *, answers_max: int | None) -> None:
        self._threads.append(threading.Thread(target=self._relay, args=(source, target, answers_max)))
        self._threads[-1].start()

    def _relay(self, source: socket.socket, target: socket.socket, answers_max: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if passed == answers_max:
                    self.lost += 1
                    break
                target.sendall(data)
                passed += 1
        _end(source)
        _end(target)


class BadLink:
    """Relays connections over a bad network: it may hold back everything, or cut each connection after some bytes.

    What was held back never arrives; the connections stay open until then.
    """

    def __init__(self, host: str, port: int, *, cut_bytes: Callable[[], int] | None = None) -> None:
        self.connections = 0
        self._cut_bytes = cut_bytes
        self._passes = threading.Event()
        self._passes.set()
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"lavant://127.0.0.1:{self._listener.getsockname()[1]}"

    def hold_back(self) -> None:
        self._passes.clear()

    def pass_on(self) -> None:
        """For connections made from now on."""
        self._passes.set()

    def stop_cutting(self) -> None:
        self._cut_bytes = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._passes.set()
        for each in self._sockets:
            _end(each)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                try:
                    server = socket.create_connection(self._server)
                except ConnectionRefusedError:
                    client.close()
                    continue
                self.connections += 1
                self._sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    left = None if self._cut_bytes is None else self._cut_bytes()
                    self._threads.append(threading.Thread(target=self._relay, args=(source, target, left)))
                    self._threads[-1].start()

    def _relay(self, source: socket.socket, target: socket.socket, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self._passes.is_set():
                    self._passes.wait()
                    break
                target.sendall(data if left is None else data[:left])
                if left is not None and (left := left - len(data)) <= 0:
                    break
        _end(source)
        _end(target)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

"""Relays before a server: one that loses an answer, and one that keeps connections open and passes nothing on."""

from __future__ import annotations

import contextlib
import socket
import threading
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


class Silent:
    """Relays connections; while `is_silent`, both sides stay connected and nothing arrives."""

    def __init__(self, host: str, port: int) -> None:
        self.connections = 0
        self._passes = threading.Event()
        self._passes.set()
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"lavant://127.0.0.1:{self._listener.getsockname()[1]}"

    def fall_silent(self) -> None:
        self._passes.clear()

    def speak(self) -> None:
        """For connections made from now on; what was sent meanwhile is lost with the old ones."""
        self._passes.set()

    def close(self) -> None:
        self._passes.set()
        for each in self._sockets:
            _end(each)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(self._server)
                self.connections += 1
                self._sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._relay, args=(source, target), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self._passes.is_set():
                    self._passes.wait()
                    break  # what a dead network held back never arrives
                target.sendall(data)
        _end(source)
        _end(target)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

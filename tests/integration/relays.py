"""A relay before a server that loses an answer: what was asked is done, and whoever asked does not hear of it."""

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


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

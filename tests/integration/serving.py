"""`lavant serve` as a real process on a free port, to be stopped, killed and started again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from types import TracebackType
from typing import Self

from lavant.service.observability.metrics import FRESH_S_MAX

LAVANT = Path(sys.executable).parent / "lavant"
WAIT_S_MAX = 60


class Served:
    """A server with its messages in a directory, or in memory without one."""

    def __init__(self, data: Path | None, *options: str, port: int = 0) -> None:
        self.data = data
        place = ["--memory"] if data is None else ["--data", str(data)]
        self._start([str(LAVANT), "serve", "--port", str(port), *place, *options])

    def _start(self, command: list[str]) -> None:
        self.process = self._popen(command)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().strip()
        """What it printed when it was ready."""
        found = re.search(r"(lavants?)://(\S+):([0-9]+);", self.line)
        if found is None:
            self.process.wait(WAIT_S_MAX)
            raise AssertionError(f"the server printed {self.line!r}, and {self.errors()!r}")
        self.log = ""
        """What it wrote to its error output until it stopped."""
        self.scheme, self.host, self.port = found[1], found[2], int(found[3])

    @property
    def complaints(self) -> str:
        """What is in its log beyond plain information, and faults of webhooks, which are not the server's."""
        lines = self.log.splitlines(keepends=True)
        return "".join(line for line in lines if re.match(r"\S+Z INFO |(\S+Z WARNING )?webhook of ", line) is None)

    def _popen(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def http(self, path: str, key: str | None = None) -> HTTPResponse:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        request = urllib.request.Request(f"http://{self.host}:{self.port}{path}", headers=headers)
        response = urllib.request.urlopen(request, timeout=WAIT_S_MAX)
        assert isinstance(response, HTTPResponse)
        return response

    def metric(self, name: str, key: str | None = None) -> float:
        with self.http("/metrics", key) as response:
            found = re.search(rf"^{re.escape(name)} ([0-9.]+)$", response.read().decode(), re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def fresh_metric(self, name: str) -> float:
        """As it is now: a rendering is shared for a while, and may be of an earlier test."""
        time.sleep(FRESH_S_MAX)
        return self.metric(name)

    def wait_for_metric(self, name: str, value: float, key: str | None = None) -> None:
        deadline_s = time.monotonic() + WAIT_S_MAX
        while (found := self.metric(name, key)) != value:
            assert time.monotonic() < deadline_s, f"{name} is {found}, and not {value}"
            time.sleep(0.01)

    def memory_kb_max(self) -> int:
        """The most that it has ever used."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    def memory_kb_at_rest(self, key: str | None = None) -> int:
        """The most that it has used when its kernels are loaded. They take some 100 MB, whatever is asked meanwhile."""
        self.wait_for_metric("lavant_kernels_loaded", 1, key)
        return self.memory_kb_max()

    def kill(self) -> None:
        """As a crash does it."""
        self.process.kill()
        self.process.wait()
        self._close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """In good order; the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(WAIT_S_MAX)
        self.log = self.errors()
        self._close()
        return code

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        self._close()

    def _close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class ServedWithLimits(Served):
    """A server whose limits are not those of `lavant serve`."""

    def __init__(self, data: Path | None = None, **limits: float) -> None:
        self.data = data
        place = [] if data is None else [str(data)]
        self._start([sys.executable, "-m", "tests.integration.limited_server", json.dumps(limits), *place])

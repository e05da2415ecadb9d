"""A real browser: Debian's Chromium without a window, driven over the W3C WebDriver protocol of its own driver."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.integration.components import do_without

WAIT_S_MAX = 60
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Names of pages lead to this machine, and nothing leads anywhere else.
    "--host-resolver-rules=MAP *.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
]


def require_chromium() -> None:
    """Skip, with the reason, where there is no browser; continuous integration fails instead."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing:
        do_without(f"there is no {' and no '.join(missing)} on the PATH; run tools/chromium")


class Browser:
    """One window, with a profile of its own that is empty."""

    def __init__(self, profile: Path) -> None:
        self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self._driver.stdout is not None
        found = next(filter(None, (re.search(r"successfully on port ([0-9]+)", line) for line in self._driver.stdout)))
        self._connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=WAIT_S_MAX)
        options = {"binary": shutil.which("chromium"), "args": [*FLAGS, f"--user-data-dir={profile}"]}
        timeouts = {"script": WAIT_S_MAX * 1000, "pageLoad": WAIT_S_MAX * 1000}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "timeouts": timeouts}
        self._session = ""
        self._session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def open(self, url: str) -> None:
        """Go there, as if the user had typed it."""
        self._ask("POST", f"/session/{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """The body of an asynchronous function, in the page that is shown; what it returns."""
        body = f"const done = arguments[arguments.length - 1]; (async (...given) => {{{script}}})(...arguments)"
        body += ".then(value => done({value}), error => done({error: String(error)}))"
        answer = self._ask("POST", f"/session/{self._session}/execute/async", {"script": body, "args": arguments})
        assert "error" not in answer, answer
        return answer.get("value")

    def close(self) -> None:
        if self._session:
            self._ask("DELETE", f"/session/{self._session}", None)
        self._connection.close()
        self._driver.terminate()
        self._driver.wait(WAIT_S_MAX)
        assert self._driver.stdout is not None
        self._driver.stdout.close()

    def _ask(self, method: str, path: str, body: Any) -> Any:
        self._connection.request(method, path, None if body is None else json.dumps(body))
        response = self._connection.getresponse()
        value = json.loads(response.read())["value"]
        assert response.status == http.client.OK, value
        return value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

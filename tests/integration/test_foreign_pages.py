"""Web pages in a real browser: those of others change nothing and see nothing, own and allowed ones may do it all."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.integration.browser import Browser, require_chromium
from tests.integration.page_attempts import SCRIPT
from tests.integration.serving import Served
from tests.integration.talking_http import Talker, until


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>A page</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def pages() -> Iterator[int]:
    """The port of a server of pages, which has every name that ends in `.example`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    require_chromium()
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@contextmanager
def furnished(data: Path, *options: str) -> Iterator[tuple[Served, Talker]]:
    """A server with a queue `orders` and a subscription `dear`, and two messages in each."""
    with Served(data, *options) as served, Talker(served) as talker:
        talker.subscribe("dear", "kind = 'dear'")
        talker.publish({"kind": "dear", "n": 1}, {"kind": "dear", "n": 2})
        sqs(talker, "CreateQueue", QueueName="orders")
        for body in ("one", "two"):
            sqs(talker, "SendMessage", QueueUrl="orders", MessageBody=body)
        yield served, talker


def sqs(talker: Talker, action: str, **members: Any) -> Any:
    kind = "application/x-amz-json-1.0"
    body = json.dumps(members).encode()
    answered = talker.ask("POST", "/", body, kind=kind, X_Amz_Target=f"AmazonSQS.{action}")
    assert answered.status == 200, answered
    return answered.json if answered.body else {}


def journal(served: Served) -> dict[str, bytes]:
    """Everything that the server has written of what it did: what is not there has not happened."""
    assert served.data is not None
    files = (path for path in served.data.rglob("*") if path.is_file() and path.name != "clock")
    return {str(path): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with furnished(tmp_path_factory.mktemp("attacked")) as (served, talker):
        yield served
        assert sorted(url.rpartition("/")[2] for url in sqs(talker, "ListQueues")["QueueUrls"]) == ["dear", "orders"]
        orders = sqs(talker, "ReceiveMessage", QueueUrl="orders", MaxNumberOfMessages=10, AttributeNames=["All"])[
            "Messages"
        ]
        assert [(each["Body"], each["Attributes"]["ApproximateReceiveCount"]) for each in orders] == [
            ("one", "1"),
            ("two", "1"),
        ]
        assert [(each["publication"]["n"], each["attempt"]) for each in talker.receive("dear")] == [(1, 1), (2, 1)]
        assert served.stop() == 0
        assert served.complaints == ""


@pytest.mark.parametrize(
    ("page", "server"),
    [
        ("http://evil.example:{pages}", "http://127.0.0.1:{port}"),
        ("http://evil.example:{pages}", "http://localhost:{port}"),
        ("http://localhost:{pages}", "http://localhost:{port}"),
        ("http://evil.example:{port}", "http://evil.example:{port}"),
    ],
    ids=["foreign page", "foreign page, by name", "other port of this machine", "name that was made to lead here"],
)
def test_a_page_of_others_changes_nothing_and_sees_nothing(
    browser: Browser, pages: int, attacked: Served, page: str, server: str
) -> None:
    address = server.format(port=attacked.port)
    browser.open(page.format(pages=pages, port=attacked.port) + "/")
    before = journal(attacked)
    seen: dict[str, str] = browser.run(SCRIPT, address, "dear", None)
    assert len(seen) > 20
    assert {name: answer for name, answer in seen.items() if "dear" in answer} == {}
    assert journal(attacked) == before


@pytest.mark.parametrize("page", ["http://127.0.0.1:{port}", "http://app.example:{pages}"], ids=["own", "allowed"])
def test_an_own_page_and_one_that_is_allowed_can_do_everything(
    browser: Browser, pages: int, tmp_path: Path, page: str
) -> None:
    """With the very same attempts."""
    with furnished(tmp_path, "--allow-origin", f"http://app.example:{pages}") as (served, talker):
        browser.open(page.format(pages=pages, port=served.port) + "/")

        def attempt(name: str) -> str:
            seen: str = browser.run(SCRIPT, f"http://127.0.0.1:{served.port}", "dear", name)
            return seen

        def names() -> list[str]:
            return [url.rpartition("/")[2] for url in sqs(talker, "ListQueues")["QueueUrls"]]

        assert '"n":1' in attempt("receive")
        assert '"n":' in attempt("events")
        assert '"n":' in attempt("WebSocket")
        assert '"accepted":1' in attempt("publication")
        assert "MessageId" in attempt("SQS in JSON")
        assert '"name":"dear"' in attempt("reading")
        assert "CreateQueueResult" in attempt("form that creates")
        assert "new" in names()
        attempt("form that purges")
        assert sqs(talker, "ReceiveMessage", QueueUrl="orders") in ({}, {"Messages": []})
        attempt("unsubscription")
        assert "dear" not in names()
        attempt("beacon that deletes")
        until(lambda: "orders" not in names())
        assert served.stop() == 0

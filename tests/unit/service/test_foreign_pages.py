"""Every route and action × every kind of request that a web page of others can make: refused, and nothing changes.

The requests are made from the tables of routes and actions, and are such that they do have an effect when the server's
own page or a client sends them. So a route that is added is covered, and it is the page that makes the difference.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from botocore.serialize import create_serializer
from tests.unit.service.aws.sqs.query_model import query_model
from tests.unit.service.front_ends import ARN, HOST, FrontEnds
from tests.unit.service.test_access_matrix import HTTP, PUBLIC, SQS, TABLES, WAYS
from tests.unit.service.wiring import in_loop, until

from lavant.broker.protocol import jobs, queues, subscriptions
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.workflows.definitions.toml_file import convert_workflows
from lavant.service.auth.browser_guard.rules import PAGES
from lavant.service.aws.sqs.handles import Handles
from lavant.service.http.operation import EVENTS, STREAM

EVIL = "http://evil.example"
FORM = "application/x-www-form-urlencoded"
NEW_TABLES = {**TABLES, "topics": ["T", "U"]}


class Asked(NamedTuple):
    """A request that is fine as it is."""

    name: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    kind: str = "http"
    changes: bool = False
    is_stream: bool = False


class World:
    """A server that is open to everybody, with something of everything in it."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.front = FrontEnds(directory, **options)

    async def furnish(self) -> None:
        ask = self.front.native
        await ask("", queues.CreateQueue("q", QueueConfig()))
        await ask("", queues.CreateQueue("source", QueueConfig(dead_letters="q", receives_max=3)))
        await ask("", queues.Send("q", [queues.SendEntry(b"x"), queues.SendEntry(b"y")]))
        await ask("", subscriptions.Subscribe("a = 1", "s"))
        await ask("", subscriptions.Publish([b'{"a": 1}'] * 2, ""))
        await ask("", subscriptions.Advertise("a = 1", "ad"))
        await ask("", jobs.DefineJobs(convert_workflows(TABLES)))
        await ask("", jobs.SubmitJob("j", b"{}"))
        await ask("", jobs.AddSchedule("old", "@yearly", queue="q"))
        self.of_q, self.of_s = [await self._leased(queue) for queue in ("q", "s")]

    async def _leased(self, queue: str) -> queues.Receipt:
        received = await self.front.native("", queues.Receive(queue, 1))
        assert isinstance(received, queues.Received)
        return received.deliveries[0].receipt

    @property
    def records(self) -> int:
        """Of the journal: each request that changes something has one."""
        return self.front.store.position

    @property
    def state(self) -> tuple[int, bytes]:
        """Everything that there is, and until when time has passed, which queries change too."""
        return self.records, b"".join(self.front.wiring.broker.snapshot())

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def requests(self) -> list[Asked]:
        return [*self._pages(), *self._routes(), *self._actions()]

    def _pages(self) -> list[Asked]:
        return [Asked(f"{method} {path}", method, path, {}) for path in sorted(PUBLIC) for method in ("GET", "HEAD")]

    def _routes(self) -> list[Asked]:
        receipt = f"{self.of_s.number:x}-{self.of_s.lease:x}"
        of_q = f"{self.of_q.number:x}-{self.of_q.lease:x}"
        paths = {"/subscriptions/none": "/subscriptions/s", "/advertisements/none": "/advertisements/ad"}
        paths |= {"/schedules/none": "/schedules/old"}
        paths |= {"/queues/none": "/queues/q", "/queues/none/redrive": "/queues/q/redrive"}
        bodies = {"/subscriptions/s/acknowledge": {"receipts": [receipt]}, "/workflows": NEW_TABLES}
        bodies |= {"/queues/q/acknowledge": {"receipts": [of_q]}, "/queues/none/redrive": {"destination": "source"}}
        return [
            Asked(
                f"{method} {path}",
                method,
                paths.get(route.path, route.path),
                {"content-type": "application/json", "accept": "text/event-stream"},
                b"" if route.body is None else json.dumps(bodies.get(route.path, route.body)).encode(),
                kind="websocket" if WAYS[method, path] == STREAM else "http",
                changes=(method != "GET" or WAYS[method, path] in (EVENTS, STREAM)) and path not in NO_EFFECT,
                is_stream=WAYS[method, path] in (EVENTS, STREAM),
            )
            for (method, path), route in HTTP.items()
        ]

    def _actions(self) -> list[Asked]:
        found = []
        for action, (scope, members) in SQS.items():
            given = self._members(action, members)
            changes = bool(scope) and action not in NO_EFFECT
            target = {"x-amz-target": f"AmazonSQS.{action}", "content-type": "application/x-amz-json-1.0"}
            found.append(Asked(f"JSON {action}", "POST", "/", target, json.dumps(given).encode(), changes=changes))
            form = create_serializer("query").serialize_to_request(given, query_model().operation_model(action))["body"]
            body = urlencode(form).encode()
            found.append(Asked(f"query {action}", "POST", "/", {"content-type": FORM}, body, changes=changes))
        return found

    def _members(self, action: str, members: dict[str, Any]) -> dict[str, Any]:
        seals = Handles(b"salt", "")
        entry = {"Id": "1", "ReceiptHandle": seals.receipt_handle("q", self.of_q)}
        match action:
            case "CreateQueue":
                return {"QueueName": "new"}
            case "DeleteQueue":
                return {"QueueUrl": "q"}
            case "StartMessageMoveTask":
                return {"SourceArn": ARN + "q", "DestinationArn": ARN + "source"}
            case "CancelMessageMoveTask":
                return {"TaskHandle": seals.task_handle(1)}
            case "DeleteMessageBatch":
                return {**members, "Entries": [entry]}
            case "ChangeMessageVisibilityBatch":
                return {**members, "Entries": [{**entry, "VisibilityTimeout": 0}]}
            case "DeleteMessage" | "ChangeMessageVisibility":
                return {**members, "ReceiptHandle": entry["ReceiptHandle"]}
        return members

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def status(self, asked: Asked) -> int:
        """Of the answer; of a stream that began, when it began."""
        opened = self.front.open(asked.method, asked.path, asked.headers, asked.body, kind=asked.kind)
        for _ in range(20):
            await asyncio.sleep(0)
        self.front.store.commit()  # acknowledgements wait for the next commit
        await until(lambda: bool(opened.sent))
        if asked.is_stream:
            for _ in range(20):
                await asyncio.sleep(0)
            is_socket = asked.kind == "websocket"
            left = "websocket.disconnect" if is_socket else "http.disconnect"
            opened.incoming.put_nowait({"type": left, "code": 1000})
        async with asyncio.timeout(20):
            await opened.task
        return int(opened.sent[0].get("status", 101))


NO_EFFECT = {
    "CancelMessageMoveTask",
    "/subscriptions/{name}/renew",
    "/federation/balancing",
    "/federation/moves",
    "/federation/trace",
    "/federation/neighbours/{name}",
}
"""There is no move to be cancelled, a renewal is not recorded, and the server is in no federation."""


def in_world(directory: Path, work: Callable[[World], Coroutine[Any, Any, None]], **options: Any) -> None:
    @in_loop
    async def run() -> None:
        world = World(directory, **options)
        await world.furnish()
        await work(world)
        assert world.front.wiring.failures == []

    run()


def names() -> list[str]:
    actions = [f"{protocol} {action}" for action in SQS for protocol in ("JSON", "query")]
    return [*(f"{method} {path}" for method, path in HTTP), *actions]


@pytest.mark.parametrize("name", names())
def test_a_client_and_an_own_page_can_do_everything(tmp_path: Path, name: str) -> None:
    """Otherwise what follows would be no surprise."""

    async def work(world: World) -> None:
        [asked] = [each for each in world.requests() if each.name == name]
        before = world.records
        own = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
        status = await world.status(asked._replace(headers=asked.headers | own))
        assert status not in (403, 406, 415, 421)
        assert (world.records != before) is asked.changes, status

    in_world(tmp_path, work)


FETCH = {"sec-fetch-dest": "empty"}
FRAME = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
PAGES_OF_OTHERS: dict[str, dict[str, str]] = {
    "a form": LINK | {"origin": EVIL},
    "a form in a sandboxed frame": FRAME | {"origin": "null", "sec-fetch-site": "cross-site"},
    "fetch": FETCH | {"origin": EVIL, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
    "fetch without cors": FETCH | {"origin": EVIL, "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    "an old browser": {"origin": EVIL},
    "an older browser": {"origin": "null"},
    "an image": {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    "a frame": FRAME | {"sec-fetch-site": "cross-site"},
    "another port of the same host": FETCH | {"origin": f"http://{HOST}:8080", "sec-fetch-site": "same-site"},
    "an image from another port": {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    "another scheme": {"origin": f"ftp://{HOST}"},
    "a link": LINK,
    "a rebound name": {"host": "evil.example", "origin": EVIL, "sec-fetch-site": "same-origin"},
    "a rebound name, GET": {"host": "evil.example:7324", "sec-fetch-site": "same-origin"},
    "a rebound name, old browser": {"host": "evil.example"},
    "a rebound name that looks like ours": {"host": f"{HOST}.evil.example"},
    "a rebound name that looks like an address": {"host": "127.0.0.1.evil.example"},
}
"""What browsers say of pages of others. Pages themselves cannot set these headers."""


@pytest.mark.parametrize("page", PAGES_OF_OTHERS)
def test_a_page_of_others_can_do_nothing(tmp_path: Path, page: str) -> None:
    async def work(world: World) -> None:
        before, wrong = world.state, []
        for asked in world.requests():
            for method in {asked.method, "OPTIONS", "GET"} if asked.kind == "http" else {asked.method}:
                said = {"access-control-request-method": asked.method} if method == "OPTIONS" else {}
                foreign = asked._replace(method=method, headers=asked.headers | PAGES_OF_OTHERS[page] | said)
                status = await world.status(foreign)
                is_harmless = page == "a link" and method == "GET" and asked.path in PUBLIC
                if status != (200 if is_harmless else 421 if "host" in PAGES_OF_OTHERS[page] else 403):
                    wrong.append((method, asked.name, status))
        assert wrong == []
        assert world.state == before

    in_world(tmp_path, work)


BEFORE_FETCH_METADATA: dict[str, tuple[str, str | None]] = {
    "an image, a script, a link": ("GET", None),
    "a form of plain text": ("POST", "text/plain"),
    "a form with files": ("POST", "multipart/form-data; boundary=x"),
    "an empty request": ("POST", None),
}


@pytest.mark.parametrize("kind", BEFORE_FETCH_METADATA)
def test_what_any_page_can_send_changes_nothing_even_if_the_browser_does_not_say_who_asks(
    tmp_path: Path, kind: str
) -> None:
    """Only forms of SQS's query protocol remain, which nothing but `Origin` tells from those of a client."""
    method, content_type = BEFORE_FETCH_METADATA[kind]

    async def work(world: World) -> None:
        before = world.records
        for asked in world.requests():
            if asked.kind == "websocket":
                continue  # always with an Origin
            query = asked.body.decode() if asked.name.startswith("query") and method == "GET" else ""
            body = b"" if content_type is None else asked.body
            kinds = {} if content_type is None else {"content-type": content_type}
            path = f"{asked.path}?{query}" if query else asked.path
            await world.status(Asked(asked.name, method, path, {"accept": "image/avif,*/*;q=0.8"} | kinds, body))
            assert world.records == before, asked.name

    in_world(tmp_path, work)


def test_the_pages_that_links_may_lead_to_are_those_that_ask_for_no_key() -> None:
    assert PAGES == PUBLIC


# ── origins that are allowed ──────────────────────────────────────────────────────────────────────────────────────────

APP = "https://app.example"
OF_APP = {"origin": APP, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}


def test_a_page_of_an_allowed_origin_can_do_everything_and_read_the_answers(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        for asked in world.requests():
            opened = world.front.open(asked.method, asked.path, asked.headers | OF_APP, asked.body, kind=asked.kind)
            await until(partial(bool, opened.sent))
            opened.task.cancel()
            first = opened.sent[0]
            assert first.get("status") not in (403, 421), asked.name
            if asked.kind == "http":
                assert dict(first["headers"])[b"access-control-allow-origin"] == APP.encode(), asked.name

    in_world(tmp_path, work, origins=(APP,))


def test_a_preflight_of_an_allowed_origin_is_answered_the_same_on_every_path(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        before = world.state
        asking = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type,a-b",
        }
        for path in sorted({asked.path for asked in world.requests() if asked.kind == "http"}):
            answered = await world.front.open("OPTIONS", path, OF_APP | asking).response()
            assert answered.status == 204
            assert answered.headers == {
                "access-control-allow-origin": APP,
                "vary": "Origin",
                "access-control-allow-methods": "GET, POST, PUT, DELETE",
                "access-control-max-age": "600",
                "access-control-allow-headers": "content-type,a-b",
            }
        assert world.state == before

    in_world(tmp_path, work, origins=(APP,))


def test_a_refusal_says_what_was_wrong_and_which_option_lets_it_in(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        host = await world.front.open("GET", "/healthz", {"host": "evil.example:7324"}).response()
        assert (host.status, host.headers["connection"]) == (421, "close")
        assert host.headers["content-type"] == "application/problem+json"
        assert host.json == {
            "type": "urn:lavant:MisdirectedRequest",
            "title": "Misdirected Request",
            "status": 421,
            "detail": host.json["message"],
            "code": "MisdirectedRequest",
            "error": {"code": "MisdirectedRequest", "reason": host.json["message"]},
            "message": "the request is for the host 'evil.example:7324', and this server answers to localhost, IP "
            "addresses, queues.test; if it is to be reached by that name, start it with --public-host evil.example",
        }
        page = await world.front.open("POST", "/publish", {"origin": EVIL}).response()
        assert page.status == 403
        assert page.json["error"] == {
            "code": "AccessDenied",
            "reason": "a page of the origin 'http://evil.example' may not use this server; if it is to, start the "
            "server with --allow-origin http://evil.example",
        }

    in_world(tmp_path, work)

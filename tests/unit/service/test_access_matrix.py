"""Every request × every kind of principal, through the real front ends: one table says who is let through.

A request, route or action that is not in the table fails here, and so does a path that answers without a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from starlette.applications import Starlette
from tests.unit.service.auth.test_authorization import INTERNAL, OF_THE_SERVER, REQUESTS
from tests.unit.service.front_ends import ARN, FrontEnds, Open, credential, denied, key
from tests.unit.service.wiring import in_loop, until

from lavant.broker.protocol import jobs, queues, subscriptions
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.workflows.definitions.toml_file import convert_workflows
from lavant.service.aws.sqs.actions import ACTIONS
from lavant.service.aws.sqs.handles import Handles
from lavant.service.http.operation import EVENTS, STREAM
from lavant.service.http.routes.operations import OPERATIONS

SCOPES = ("publish", "subscribe", "admin")
TABLES = {"topics": ["T"], "jobs": {"j": {"start": "t", "tasks": {"t": {"topic": "T"}}}}}


class Kind(NamedTuple):
    """A kind of principal."""

    name: str
    scopes: tuple[str, ...]
    namespace: str = ""

    def passes(self, scope: str, *, is_of_the_server: bool = False) -> bool:
        """The one rule: any scope will do for what needs none; what is the server's is for no namespace."""
        return (not scope or scope in self.scopes) and not (is_of_the_server and self.namespace)


STRANGERS = [Kind("", ()), Kind("wrong", ())]
"""Without a key, and with one that is not known."""
KNOWN = [
    *(Kind(f"{scope}-only", (scope,)) for scope in SCOPES),
    *(Kind(f"acme-{scope}", (scope,), "acme") for scope in SCOPES),
    Kind("acme", SCOPES, "acme"),
    Kind("other", SCOPES, "other"),
    Kind("operator", SCOPES),
]
ALL = [*STRANGERS, *KNOWN]
each_kind = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name or "nobody")


def in_front(directory: Path, work: Callable[[FrontEnds], Coroutine[Any, Any, None]]) -> None:
    @in_loop
    async def run() -> None:
        front = FrontEnds(
            directory,
            [key(each.name, *each.scopes, namespace=each.namespace) for each in KNOWN],
            [credential(each.name, *each.scopes, namespace=each.namespace) for each in KNOWN],
        )
        for queue in ("q", "acme/q", "other/q"):
            await front.native("operator", queues.CreateQueue(queue, QueueConfig()))
        await front.native("operator", jobs.DefineJobs(convert_workflows(TABLES)))
        await work(front)
        assert front.wiring.failures == []

    run()


# ── native ────────────────────────────────────────────────────────────────────────────────────────────────────────────

NATIVE = [
    (replace(request, workflows=convert_workflows(TABLES)) if isinstance(request, jobs.DefineJobs) else request, scope)
    for request, scope in REQUESTS
]
"""Whether this is whole is checked where the table is."""


def is_of_the_server(request: Any) -> bool:
    return type(request) in OF_THE_SERVER


@each_kind
def test_native_requests(tmp_path: Path, kind: Kind) -> None:
    async def work(front: FrontEnds) -> None:
        wrong = []
        for request, scope in NATIVE:
            answer = await front.native(kind.name, request)
            expected = kind in KNOWN and kind.passes(scope, is_of_the_server=is_of_the_server(request))
            if denied(answer) is expected:
                wrong.append((type(request).__name__, expected, answer))
        assert wrong == []
        for request in INTERNAL:
            assert isinstance(await front.native(kind.name, request), queues.Refused), request

    in_front(tmp_path, work)


@pytest.mark.parametrize("kind", [each for each in KNOWN if each.namespace or "admin" not in each.scopes])
def test_native_requests_that_name_another_namespace(tmp_path: Path, kind: Kind) -> None:
    """By the full name of a queue, or in a field; nobody but operators may, not even its own."""

    async def work(front: FrontEnds) -> None:
        wrong = []
        for request, _ in NATIVE:
            for named in elsewhere(request, "acme"):
                answer = await front.native(kind.name, named)
                is_own = kind.namespace == "acme" and getattr(named, "namespace", None) == "acme"
                if not denied(answer) and not is_own:
                    wrong.append((named, answer))
        assert wrong == []

    in_front(tmp_path, work)


def elsewhere(request: Any, namespace: str) -> list[Any]:
    """The request with each name that it has replaced by one of a namespace."""
    if is_of_the_server(request):
        return []
    found = []
    for field in ("queue", "source", "destination"):
        is_subscription = isinstance(request, subscriptions.Subscribe)
        if getattr(request, field, None) is not None and not is_subscription:
            found.append(replace(request, **{field: f"{namespace}/q"}))
    if hasattr(request, "config"):
        found.append(replace(request, config=QueueConfig(dead_letters=f"{namespace}/q", receives_max=1)))
    if hasattr(request, "namespace") and not isinstance(request, queues.StartMove | queues.CancelMove):
        found.append(replace(request, namespace=namespace))
    return found


def test_every_request_that_can_name_a_queue_does_so_above() -> None:
    """Prefixes of names, and numbers of moves, are looked up in the own namespace only."""
    without = {
        type(request) for request, _ in NATIVE if not is_of_the_server(request) and not elsewhere(request, "acme")
    }
    assert without == {queues.ListQueues, queues.CancelMove}


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Route(NamedTuple):
    scope: str
    path: str
    body: Any = None
    is_of_the_server: bool = False


HTTP: dict[tuple[str, str], Route] = {
    ("POST", "/publish"): Route("publish", "/publish", {"a": 1}),
    ("POST", "/subscriptions"): Route("subscribe", "/subscriptions", {"filter": "a = 1", "name": "new"}),
    ("GET", "/subscriptions"): Route("", "/subscriptions"),
    ("GET", "/subscriptions/{name}"): Route("", "/subscriptions/s"),
    ("PATCH", "/subscriptions/{name}"): Route("subscribe", "/subscriptions/none", {"filter": "a = 2"}),
    ("DELETE", "/subscriptions/{name}"): Route("subscribe", "/subscriptions/none"),
    ("POST", "/subscriptions/{name}/renew"): Route("subscribe", "/subscriptions/none/renew"),
    ("POST", "/subscriptions/{name}/receive"): Route("subscribe", "/subscriptions/s/receive", {"wait_ms": 0}),
    ("POST", "/subscriptions/{name}/acknowledge"): Route(
        "subscribe", "/subscriptions/s/acknowledge", {"receipts": ["1-1"]}
    ),
    ("GET", "/subscriptions/{name}/events"): Route("subscribe", "/subscriptions/s/events"),
    ("GET", "/events"): Route("subscribe", "/events?filter=a%20=%201"),
    ("GET", "/subscriptions/{name}/stream"): Route("subscribe", "/subscriptions/s/stream"),
    ("GET", "/stream"): Route("subscribe", "/stream?filter=a%20=%201"),
    ("POST", "/advertisements"): Route("publish", "/advertisements", {"filter": "a = 1", "name": "new"}),
    ("GET", "/advertisements"): Route("", "/advertisements"),
    ("DELETE", "/advertisements/{name}"): Route("publish", "/advertisements/none"),
    ("GET", "/queues"): Route("", "/queues"),
    ("PUT", "/queues/{name}"): Route("admin", "/queues/new", {}),
    ("GET", "/queues/{name}"): Route("", "/queues/q"),
    ("DELETE", "/queues/{name}"): Route("admin", "/queues/none"),
    ("POST", "/queues/{name}/messages"): Route("publish", "/queues/q/messages", {"messages": [{"text": "a"}]}),
    ("GET", "/queues/{name}/messages"): Route("subscribe", "/queues/q/messages"),
    ("DELETE", "/queues/{name}/messages"): Route("admin", "/queues/q/messages"),
    ("POST", "/queues/{name}/receive"): Route("subscribe", "/queues/q/receive", {"wait_ms": 0}),
    ("POST", "/queues/{name}/acknowledge"): Route("subscribe", "/queues/q/acknowledge", {"receipts": ["1-1"]}),
    ("POST", "/queues/{name}/redrive"): Route("admin", "/queues/none/redrive", {}),
    ("GET", "/resources"): Route("", "/resources", is_of_the_server=True),
    ("GET", "/telemetry"): Route("", "/telemetry", is_of_the_server=True),
    ("PUT", "/workflows"): Route("admin", "/workflows", TABLES, is_of_the_server=True),
    ("POST", "/jobs"): Route("publish", "/jobs", {"type": "j"}, is_of_the_server=True),
    ("GET", "/jobs"): Route("", "/jobs", is_of_the_server=True),
    ("GET", "/jobs/{number}"): Route("", "/jobs/1", is_of_the_server=True),
    ("DELETE", "/jobs/{number}"): Route("publish", "/jobs/1", is_of_the_server=True),
    ("PUT", "/schedules/{name}"): Route("admin", "/schedules/s", {"cron": "@daily", "queue": "q"}),
    ("GET", "/schedules"): Route("", "/schedules"),
    ("DELETE", "/schedules/{name}"): Route("admin", "/schedules/none"),
    ("GET", "/federation"): Route("", "/federation", is_of_the_server=True),
    ("POST", "/federation/trace"): Route("", "/federation/trace", {"publication": {"a": 1}}, is_of_the_server=True),
    ("GET", "/federation/subscriptions"): Route("", "/federation/subscriptions", is_of_the_server=True),
    ("POST", "/federation/moves"): Route(
        "admin", "/federation/moves", {"subscription": "s", "broker": "b"}, is_of_the_server=True
    ),
    ("GET", "/federation/balancing"): Route("", "/federation/balancing", is_of_the_server=True),
    ("PUT", "/federation/balancing"): Route("admin", "/federation/balancing", {"is_on": True}, is_of_the_server=True),
    ("DELETE", "/federation/neighbours/{name}"): Route("admin", "/federation/neighbours/b", is_of_the_server=True),
}
PUBLIC = {"/", "/healthz", "/readyz", "/metrics", "/openapi.json"}
"""Paths that ask for no key, with GET and HEAD."""
BACKUP = "/backup"
"""For operators only; it is no request of the broker, so it has no operation."""
WAYS = {(each.method, each.path): each.way for each in OPERATIONS}


def test_every_route_has_a_row_that_says_the_same_as_openapi() -> None:
    assert {(each.method, each.path): each.scope for each in OPERATIONS} == {
        place: route.scope for place, route in HTTP.items()
    }


def test_no_route_is_there_that_is_in_no_table(tmp_path: Path) -> None:
    async def work(front: FrontEnds) -> None:
        application = front.api._application  # type: ignore[attr-defined]
        assert isinstance(application, Starlette)
        paths = {route.path_format for route in application.routes}  # type: ignore[attr-defined]
        assert paths == {path for _, path in HTTP} | (PUBLIC & {"/", "/openapi.json"}) | {BACKUP}

    in_front(tmp_path, work)


async def status_of(front: FrontEnds, kind: Kind, place: tuple[str, str]) -> int:
    """Of the answer; of a stream that began, 200."""
    method, route = place[0], HTTP[place]
    is_socket = WAYS[place] == STREAM
    opened = front.open_http(kind.name, method, route.path, route.body, kind="websocket" if is_socket else "http")
    if WAYS[place] in (EVENTS, STREAM):
        await until(lambda: bool(opened.sent))
        opened.incoming.put_nowait({"type": "websocket.disconnect" if is_socket else "http.disconnect", "code": 1000})
        async with asyncio.timeout(20):
            await opened.task
        return 200 if opened.sent[0]["type"] == "websocket.accept" else int(opened.sent[0]["status"])
    return (await opened.response()).status


@each_kind
def test_http_routes(tmp_path: Path, kind: Kind) -> None:
    async def work(front: FrontEnds) -> None:
        for namespace in ("", "acme", "other"):
            await front.native("operator", subscriptions.Subscribe("a = 1", "s", namespace=namespace))
        wrong = []
        for place, route in HTTP.items():
            status = await status_of(front, kind, place)
            if kind in STRANGERS:
                is_right = status == 401
            elif kind.passes(route.scope, is_of_the_server=route.is_of_the_server):
                is_right = status not in (401, 403) and status < 500
            else:
                is_right = status == 403
            if not is_right:
                wrong.append((place, status))
        assert wrong == []

    in_front(tmp_path, work)


@each_kind
def test_a_backup_is_for_operators(tmp_path: Path, kind: Kind) -> None:
    async def work(front: FrontEnds) -> None:
        status = (await front.http(kind.name, "GET", BACKUP)).status
        if kind in STRANGERS:
            assert status == 401
        else:  # there is nothing to back up: this server has no disk
            assert status == (409 if kind.passes("admin", is_of_the_server=True) else 403)

    in_front(tmp_path, work)


@pytest.mark.parametrize("kind", [*STRANGERS, Kind("publish-only", ("publish",))], ids=lambda kind: kind.name)
def test_only_public_paths_answer_without_a_key(tmp_path: Path, kind: Kind) -> None:
    guessed = {"/readyz/", "/livez", "/health", "/debug", "/admin", "/docs", "/favicon.ico", "/metrics/", "/healthz/",
               "/openapi.json/", "//metrics", "/Metrics", "/resources/", "/000000000000/q", "/q"}  # fmt: skip

    async def work(front: FrontEnds) -> None:
        for path in PUBLIC:
            for method in ("GET", "HEAD"):
                assert (await front.http(kind.name, method, path)).status == 200, path
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                assert (await front.http(kind.name, method, path)).status in (400, 401, 403, 404, 405), path
        for path in guessed:
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
                assert (await front.http(kind.name, method, path)).status in (400, 401, 403, 404, 405), path

    in_front(tmp_path, work)


def test_nothing_redirects_to_what_the_host_header_says(tmp_path: Path) -> None:
    async def work(front: FrontEnds) -> None:
        for path in [*PUBLIC, *(route.path.partition("?")[0] for route in HTTP.values())]:
            for variant in (path + "/", path.rstrip("/"), "/" + path, path + "/?x=1", path + "//"):
                for method in ("GET", "POST", "HEAD"):
                    opened: Open = front.open(method, variant, {"authorization": "Bearer operator"})
                    if opened.task.done() or not variant.endswith(("events", "stream")):
                        answered = await opened.response()
                        assert "location" not in answered.headers, variant
                        assert not 300 <= answered.status < 400, variant
                    else:
                        opened.incoming.put_nowait({"type": "http.disconnect"})
                        await opened.task

    in_front(tmp_path, work)


# ── SQS ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

_URL = {"QueueUrl": "q"}
_RECEIPT = {"Id": "1", "ReceiptHandle": "", "VisibilityTimeout": 0}
SQS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "CreateQueue": ("admin", {"QueueName": "q"}),
    "DeleteQueue": ("admin", {"QueueUrl": "none"}),
    "PurgeQueue": ("admin", _URL),
    "SetQueueAttributes": ("admin", {**_URL, "Attributes": {"DelaySeconds": "0"}}),
    "TagQueue": ("admin", {**_URL, "Tags": {"a": "b"}}),
    "UntagQueue": ("admin", {**_URL, "TagKeys": ["a"]}),
    "StartMessageMoveTask": ("admin", {"SourceArn": ARN + "q", "DestinationArn": ARN + "s"}),
    "CancelMessageMoveTask": ("admin", {}),
    "SendMessage": ("publish", {**_URL, "MessageBody": "x"}),
    "SendMessageBatch": ("publish", {**_URL, "Entries": [{"Id": "1", "MessageBody": "x"}]}),
    "ReceiveMessage": ("subscribe", _URL),
    "DeleteMessage": ("subscribe", _URL),
    "DeleteMessageBatch": ("subscribe", _URL),
    "ChangeMessageVisibility": ("subscribe", {**_URL, "VisibilityTimeout": 0}),
    "ChangeMessageVisibilityBatch": ("subscribe", _URL),
    "GetQueueUrl": ("", {"QueueName": "q"}),
    "GetQueueAttributes": ("", {**_URL, "AttributeNames": ["All"]}),
    "ListQueues": ("", {}),
    "ListQueueTags": ("", _URL),
    "ListDeadLetterSourceQueues": ("", _URL),
    "ListMessageMoveTasks": ("", {"SourceArn": ARN + "q"}),
    "AddPermission": (None, {**_URL, "Label": "l", "AWSAccountIds": ["1"], "Actions": ["*"]}),
    "RemovePermission": (None, {**_URL, "Label": "l"}),
}
"""Scopes; None for what nobody can do."""


def test_every_action_has_a_row() -> None:
    assert set(SQS) == set(ACTIONS)


@each_kind
def test_sqs_actions(tmp_path: Path, kind: Kind) -> None:
    async def work(front: FrontEnds) -> None:
        full = {"": "", "acme": "acme/", "other": "other/"}[kind.namespace]
        await front.native(
            "operator", queues.CreateQueue(f"{full}s", QueueConfig(dead_letters=f"{full}q", receives_max=3))
        )
        for _ in range(3):
            await front.native("operator", queues.Send(f"{full}q", [queues.SendEntry(b"x")]))
        wrong = []
        for action, (scope, members) in SQS.items():
            response = await front.sqs(kind.name, action, **handles(front, kind, action, members))
            if kind in STRANGERS:
                is_right = response.status == 403 and response.code != "AccessDenied"
            elif scope is None:
                is_right = response.code.endswith("UnsupportedOperation")
            elif kind.passes(scope):
                is_right = response.status not in (401, 403) and response.status < 500
            else:
                is_right = (response.status, response.code) == (403, "AccessDenied")
            if not is_right:
                wrong.append((action, response))
        assert wrong == []

    in_front(tmp_path, work)


def handles(front: FrontEnds, kind: Kind, action: str, members: dict[str, Any]) -> dict[str, Any]:
    """With handles that pass their check, so that it is the door that decides."""
    seals = Handles(b"salt", kind.namespace)
    receipt = seals.receipt_handle("q", queues.Receipt(1, 1))
    if action == "CancelMessageMoveTask":
        return {"TaskHandle": seals.task_handle(1)}
    if action in ("DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
        return {**members, "Entries": [{**_RECEIPT, "ReceiptHandle": receipt}]}
    if action in ("DeleteMessage", "ChangeMessageVisibility"):
        return {**members, "ReceiptHandle": receipt}
    return members

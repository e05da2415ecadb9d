"""Every request, route and action leaves the line that is declared here, or none; and no secret is in any of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.service.auth.test_authorization import INTERNAL
from tests.unit.service.front_ends import FrontEnds, credential
from tests.unit.service.test_access_matrix import (
    HTTP,
    KNOWN,
    NATIVE,
    SCOPES,
    SQS,
    TABLES,
    Kind,
    handles,
    is_of_the_server,
)
from tests.unit.service.test_access_matrix import status_of as status_of_route
from tests.unit.service.wiring import in_loop

from lavant.broker.protocol import jobs, queues, subscriptions
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.registry import REGISTRY, SERVER
from lavant.broker.workflows.definitions.toml_file import convert_workflows
from lavant.service.auth.audit import AuditLog
from lavant.service.auth.keys import KeyEntry, sha256_of

KEY = "-key-s3cr3t"
MARK = "MARK-s3cr3t"

# ── what is declared ──────────────────────────────────────────────────────────────────────────────────────────────────

ADMINISTRATION = {
    "CreateQueue", "ConfigureQueue", "TagQueue", "DeleteQueue", "PurgeQueue", "StartMove", "CancelMove", "Subscribe",
    "UpdateSubscription", "Unsubscribe", "Advertise", "Unadvertise", "DefineJobs", "RemoveJobType", "KeepJobs",
    "CancelJob", "AddSchedule", "RemoveSchedule",
    "RemoveNeighbour", "MoveSubscription", "SwitchBalancing",
}  # fmt: skip
OF_DATA = {
    "Publish", "Send", "Receive", "Acknowledge", "ChangeVisibility", "Release", "EndLongPolls",
    "RenewSubscription", "SubmitJob", "LeaseTasks", "CompleteTask", "FailTask", "ExtendTask",
}  # fmt: skip
QUERIES = {
    "Peek", "DescribeQueue", "ListQueues", "ListSources", "ListMoves", "DescribeSubscription", "ListSubscriptions",
    "ListAdvertisements", "DescribeJob", "ListJobs", "DescribeJobType", "ListJobTypes",
    "ListSchedules",
    "DescribeFederation",
}  # fmt: skip

ROUTES: dict[tuple[str, str], list[str]] = {
    ("POST", "/publish"): ["Publish"],
    ("POST", "/subscriptions"): ["Subscribe"],
    ("GET", "/subscriptions"): [],
    ("GET", "/subscriptions/{name}"): [],
    ("PATCH", "/subscriptions/{name}"): ["UpdateSubscription"],
    ("DELETE", "/subscriptions/{name}"): ["Unsubscribe"],
    ("POST", "/subscriptions/{name}/renew"): ["RenewSubscription"],
    ("POST", "/subscriptions/{name}/receive"): ["Receive"],
    ("POST", "/subscriptions/{name}/acknowledge"): ["Acknowledge"],
    ("GET", "/subscriptions/{name}/events"): [],
    ("GET", "/events"): ["Subscribe"],
    ("GET", "/subscriptions/{name}/stream"): [],
    ("GET", "/stream"): ["Subscribe"],
    ("POST", "/advertisements"): ["Advertise"],
    ("GET", "/advertisements"): [],
    ("DELETE", "/advertisements/{name}"): ["Unadvertise"],
    ("GET", "/queues"): [],
    ("PUT", "/queues/{name}"): ["CreateQueue"],
    ("GET", "/queues/{name}"): [],
    ("DELETE", "/queues/{name}"): ["DeleteQueue"],
    ("POST", "/queues/{name}/messages"): ["Send"],
    ("GET", "/queues/{name}/messages"): [],
    ("DELETE", "/queues/{name}/messages"): ["PurgeQueue"],
    ("POST", "/queues/{name}/receive"): ["Receive"],
    ("POST", "/queues/{name}/acknowledge"): ["Acknowledge"],
    ("POST", "/queues/{name}/redrive"): ["StartMove"],
    ("GET", "/resources"): [],
    ("GET", "/telemetry"): [],
    ("PUT", "/workflows"): ["DefineJobs"],
    ("POST", "/jobs"): ["SubmitJob"],
    ("GET", "/jobs"): [],
    ("GET", "/jobs/{number}"): [],
    ("DELETE", "/jobs/{number}"): ["CancelJob"],
    ("PUT", "/schedules/{name}"): ["AddSchedule"],
    ("GET", "/schedules"): [],
    ("DELETE", "/schedules/{name}"): ["RemoveSchedule"],
    ("GET", "/federation"): [],
    ("POST", "/federation/trace"): [],
    ("GET", "/federation/subscriptions"): [],
    ("POST", "/federation/moves"): ["MoveSubscription"],
    ("GET", "/federation/balancing"): [],
    ("PUT", "/federation/balancing"): ["SwitchBalancing"],
    ("DELETE", "/federation/neighbours/{name}"): ["RemoveNeighbour"],
}
"""Commands of each route; those of data have lines only where these are wanted. Streams receive and acknowledge by
themselves, which is the server's work and not told."""
ACTIONS: dict[str, list[str]] = {
    "CreateQueue": ["CreateQueue"],
    "DeleteQueue": ["DeleteQueue"],
    "PurgeQueue": ["PurgeQueue"],
    "SetQueueAttributes": ["ConfigureQueue"],
    "TagQueue": ["TagQueue"],
    "UntagQueue": ["TagQueue"],
    "StartMessageMoveTask": ["StartMove"],
    "CancelMessageMoveTask": ["CancelMove"],
    "SendMessage": ["Send"],
    "SendMessageBatch": ["Send"],
    "ReceiveMessage": ["Receive"],
    "DeleteMessage": ["Acknowledge"],
    "DeleteMessageBatch": ["Acknowledge"],
    "ChangeMessageVisibility": ["ChangeVisibility"],
    "ChangeMessageVisibilityBatch": ["ChangeVisibility"],
    "GetQueueUrl": [],
    "GetQueueAttributes": [],
    "ListQueues": [],
    "ListQueueTags": [],
    "ListDeadLetterSourceQueues": [],
    "ListMessageMoveTasks": [],
    "AddPermission": [],
    "RemovePermission": [],
}


def test_every_request_route_and_action_is_declared() -> None:
    of_clients = [each.name for each in REGISTRY.values() if each.scope != SERVER]
    assert set(of_clients) == ADMINISTRATION | OF_DATA | QUERIES
    assert len(of_clients) == len(ADMINISTRATION) + len(OF_DATA) + len(QUERIES)
    assert set(ROUTES) == set(HTTP)
    assert set(ACTIONS) == set(SQS)


# ── the log ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Audited:
    """Front ends with a log, of which what is new can be had."""

    def __init__(self, directory: Path, *, is_data: bool = False) -> None:
        self.path = directory / "audit.log"
        seconds = count()
        self.audit = AuditLog(self.path, is_data=is_data, monotonic_s=lambda: float(next(seconds)))
        self.front = FrontEnds(
            directory,
            [
                KeyEntry(name=k.name, sha256=sha256_of(k.name + KEY), scopes=list(k.scopes), namespace=k.namespace)
                for k in KNOWN
            ],
            [credential(each.name, *each.scopes, namespace=each.namespace) for each in KNOWN],
            audit=self.audit,
        )
        self._seen = 0
        self._appended = 0
        self._append = self.audit.file.append
        self.audit.file.append = self._counted  # type: ignore[method-assign]

    async def lines(self) -> list[dict[str, Any]]:
        """Those since the last time; each is whole."""
        async with asyncio.timeout(20):
            while self.audit.file.written < self._appended:
                await asyncio.sleep(0.001)
        lines = self.path.read_text().splitlines()
        new, self._seen = lines[self._seen :], len(lines)
        return [json.loads(line) for line in new]

    def _counted(self, line: bytes) -> None:
        self._appended += 1
        self._append(line)


def audited(
    directory: Path,
    work: Callable[[Audited], Coroutine[Any, Any, None]],
    *,
    is_data: bool = False,
    subscribes: bool = True,
) -> None:
    @in_loop
    async def run() -> None:
        one = Audited(directory, is_data=is_data)
        operator = "operator" + KEY
        for queue in ("q", "acme/q", "other/q"):
            await one.front.native(operator, queues.CreateQueue(queue, QueueConfig()))
        await one.front.native(operator, jobs.DefineJobs(convert_workflows(TABLES)))
        for namespace in ("", "acme", "other") if subscribes else ():
            await one.front.native(operator, subscriptions.Subscribe("a = 1", "s", namespace=namespace))
        await one.lines()
        await work(one)
        one.audit.file.close()
        text = one.path.read_text()
        assert KEY not in text
        assert "s3cr3t" not in text
        assert one.front.wiring.failures == []

    run()


def told(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(line["action"], line["outcome"]) for line in lines]


# ── native ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_data", [False, True])
@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.name)
def test_native_requests(tmp_path: Path, kind: Kind, is_data: bool) -> None:
    wanted = ADMINISTRATION | (OF_DATA if is_data else set())

    async def work(one: Audited) -> None:
        for request, scope in NATIVE:
            name = type(request).__name__
            answer = await one.front.native(kind.name + KEY, request)
            lines = await one.lines()
            if not kind.passes(scope, is_of_the_server=is_of_the_server(request)):
                assert told(lines) == [(name, "denied")]
            elif name in wanted:
                outcome = "refused" if isinstance(answer, queues.Refused) else "ok"
                assert told(lines) == [(name, outcome)], answer
            else:
                assert lines == [], name
            for line in lines:
                assert (line["key"], line["namespace"], line["protocol"]) == (kind.name, kind.namespace, "native")
                assert line["scopes"] == sorted(kind.scopes)
                assert line["key_id"] == sha256_of(kind.name + KEY)[:12]
        for request in INTERNAL:
            await one.front.native(kind.name + KEY, request)
            assert told(await one.lines()) == [(type(request).__name__, "denied")]

    audited(tmp_path, work, is_data=is_data)


# ── HTTP and SQS ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_data", [False, True])
@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.name)
def test_http_routes(tmp_path: Path, kind: Kind, is_data: bool) -> None:
    wanted = ADMINISTRATION | (OF_DATA if is_data else set())

    async def work(one: Audited) -> None:
        shown = Kind(kind.name + KEY, kind.scopes, kind.namespace)
        for place, route in HTTP.items():
            await status_of_route(one.front, shown, place)
            lines = await one.lines()
            if kind.passes(route.scope, is_of_the_server=route.is_of_the_server):
                expected = [each for each in ROUTES[place] if each in wanted]
                assert [line["action"] for line in lines] == expected, place
                assert all(line["outcome"] in ("ok", "refused") for line in lines)
            else:
                assert [line["outcome"] for line in lines] == ["denied"], place
            for line in lines:
                assert (line["protocol"], line["peer"], line["key"]) == ("http", "192.0.2.7:4711", kind.name)

    audited(tmp_path, work, is_data=is_data)


@pytest.mark.parametrize("is_data", [False, True])
@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.name)
def test_sqs_actions(tmp_path: Path, kind: Kind, is_data: bool) -> None:
    wanted = ADMINISTRATION | (OF_DATA if is_data else set())

    async def work(one: Audited) -> None:
        full = f"{kind.namespace}/" if kind.namespace else ""
        config = QueueConfig(dead_letters=f"{full}q", receives_max=3)
        await one.front.native("operator" + KEY, queues.CreateQueue(f"{full}s", config))
        await one.lines()
        for action, (scope, members) in SQS.items():
            named = {
                key: value.replace("q", "q") if isinstance(value, str) else value for key, value in members.items()
            }
            await one.front.sqs(kind.name, action, **handles(one.front, kind, action, named))
            lines = await one.lines()
            if scope is None:
                assert lines == []
            elif kind.passes(scope):
                expected = [each for each in ACTIONS[action] if each in wanted]
                assert [line["action"] for line in lines] == expected, (action, lines)
            else:
                assert {line["outcome"] for line in lines} == {"denied"}, action
            for line in lines:
                assert (line["protocol"], line["peer"], line["key"]) == ("sqs", "192.0.2.7:4711", kind.name)

    audited(tmp_path, work, is_data=is_data, subscribes=False)


def test_keys_and_signatures_that_are_not_known_are_told(tmp_path: Path) -> None:
    async def work(one: Audited) -> None:
        for key in ("", "wrong-s3cr3t"):
            await one.front.native(key, queues.ListQueues())
            [line] = await one.lines()
            assert (line["action"], line["outcome"], line["error"]) == ("Authenticate", "denied", "AccessDenied")
            assert line["protocol"] == "native"
            await one.front.http(key, "GET", "/subscriptions")
            [line] = await one.lines()
            assert (line["action"], line["protocol"], line["peer"]) == ("Authenticate", "http", "192.0.2.7:4711")
            await one.front.sqs(key, "ListQueues")
            [line] = await one.lines()
            assert (line["action"], line["outcome"], line["protocol"]) == ("Authenticate", "denied", "sqs")
            assert line["error"] in ("MissingAuthenticationToken", "InvalidClientTokenId")
        known = one.front._secrets["acme"]
        one.front._secrets["forged"] = msgspec.structs.replace(known, secret="forged-s3cr3t")
        await one.front.sqs("forged", "ListQueues")
        [line] = await one.lines()
        assert (line["action"], line["error"], line["peer"]) == (
            "Authenticate", "SignatureDoesNotMatch", "192.0.2.7:4711",
        )  # fmt: skip

    audited(tmp_path, work)


# ── no secrets ────────────────────────────────────────────────────────────────────────────────────────────────────────

WEBHOOK = subscriptions.Webhook(f"https://hooks.example/{MARK}?token={MARK}", secret=MARK)
SECRETIVE: list[Any] = [
    subscriptions.Publish([json.dumps({"a": MARK}).encode()], key=MARK),
    subscriptions.Subscribe(f"a = '{MARK}'", "hooked", webhook=WEBHOOK),
    subscriptions.Subscribe(f"a = {MARK} nonsense", "bad"),
    subscriptions.Advertise(f"a = '{MARK}'", "adv"),
    queues.CreateQueue("tagged", QueueConfig(labels={"l": MARK}), {"t": MARK}),
    queues.TagQueue("q", {"t": MARK}),
    queues.Send("q", [queues.SendEntry(MARK.encode(), MARK.encode(), group=MARK, deduplication=MARK)]),
    jobs.SubmitJob("j", MARK.encode(), "job"),
    jobs.CompleteTask(1, "t", 1, jobs.Result(MARK.encode(), {"a": MARK})),
    jobs.FailTask(1, "t", 1, reason=MARK),
]


@pytest.mark.parametrize("scopes", [SCOPES, ("none",)])
def test_no_content_gets_into_the_log(tmp_path: Path, scopes: tuple[str, ...]) -> None:
    kind = "operator" if scopes == SCOPES else "acme-admin"

    async def work(one: Audited) -> None:
        for request in SECRETIVE:
            await one.front.native(kind + KEY, request)
        assert len(await one.lines()) == len(SECRETIVE), "and each of them is told"
        await one.front.http("operator" + KEY, "POST", "/publish", {"a": MARK})
        await one.front.http("operator" + KEY, "POST", "/subscriptions", {"filter": f"a = '{MARK}'", "name": "x"})
        await one.front.sqs("operator", "SendMessage", QueueUrl="q", MessageBody=MARK)
        assert MARK not in one.path.read_text()
        assert "hooks.example" not in one.path.read_text()

    audited(tmp_path, work, is_data=True)


def test_a_line_says_who_did_what_to_what(tmp_path: Path) -> None:
    async def work(one: Audited) -> None:
        await one.front.native("acme" + KEY, queues.DeleteQueue("q"))
        await one.front.native("acme" + KEY, subscriptions.Subscribe("a = 1"))
        await one.front.native("operator" + KEY, queues.PurgeQueue("other/q"))
        await one.front.native("acme" + KEY, queues.Send("none", [queues.SendEntry(b"x")] * 3))
        lines = await one.lines()
        assert [line.get("queue") for line in lines] == ["q", None, "other/q", "none"]
        assert lines[1]["name"].startswith("sub-"), "the name that the server gave"
        assert (lines[3]["messages"], lines[3]["outcome"], lines[3]["error"]) == (3, "refused", "UnknownQueue")
        assert lines[0]["time"].endswith("Z")

    audited(tmp_path, work, is_data=True)


def test_two_requests_of_one_number_are_both_told(tmp_path: Path) -> None:
    """A client that answers for its numbers only to itself does not hide anything that way."""

    async def work(one: Audited) -> None:
        client = one.front.client("acme" + KEY)
        client.ask((7, queues.CreateQueue("x", QueueConfig())), (7, queues.DeleteQueue("x")))
        for _ in range(20):
            await asyncio.sleep(0)
        assert sorted(told(await one.lines())) == [("CreateQueue", "ok"), ("DeleteQueue", "ok")]

    audited(tmp_path, work)


def test_a_client_that_hangs_up_at_once_is_told_of_nevertheless(tmp_path: Path) -> None:
    async def work(one: Audited) -> None:
        client = one.front.client("acme" + KEY)
        client.ask((7, queues.CreateQueue("x", QueueConfig())))
        client.protocol.connection_lost(None)
        for _ in range(20):
            await asyncio.sleep(0)
        assert told(await one.lines()) == [("CreateQueue", "ok")]

    audited(tmp_path, work)


def test_where_no_keys_are_wanted_anybody_is_told(tmp_path: Path) -> None:
    @in_loop
    async def run() -> None:
        audit = AuditLog(tmp_path / "audit.log")
        front = FrontEnds(tmp_path, audit=audit)
        await front.native("", queues.CreateQueue("x", QueueConfig()))
        await front.http("", "POST", "/subscriptions", {"filter": "a = 1", "name": "x2"})
        await front.sqs("", "CreateQueue", QueueName="x3")
        audit.file.close()
        lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
        assert [(line["action"], line["key"]) for line in lines] == [
            ("CreateQueue", "anybody"), ("Subscribe", "anybody"), ("CreateQueue", "anybody"),
        ]  # fmt: skip

    run()

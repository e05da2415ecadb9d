"""Every quota × every front end: what is allowed passes, one more is refused and changes nothing, and what is released
may come again; and what the keys file says now is what counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.unit.service.fake_connections import FakeConnection
from tests.unit.service.front_ends import FrontEnds, Open, Response, credential, key
from tests.unit.service.wiring import FakeClient, in_loop, ticket, until

from lavant.broker.machine.replay import replay
from lavant.broker.protocol import queues, subscriptions
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.queues.accounting.quotas import Quota
from lavant.core.errors import InvalidValue
from lavant.service.auth.keys import KeyRing
from lavant.service.auth.tenants import Tenant, Tenants
from lavant.service.aws.sqs.errors import FAULTS
from lavant.service.observability.openmetrics import family_text

SCOPES = ("publish", "subscribe", "admin")
KEYS = [key("acme", *SCOPES, namespace="acme"), key("other", *SCOPES, namespace="other"), key("operator", *SCOPES)]
CREDENTIALS = [credential(each.name, *SCOPES, namespace=each.namespace) for each in KEYS]
BODY = "x" * 100


def in_front(
    directory: Path,
    work: Callable[[FrontEnds], Coroutine[Any, Any, None]],
    quotas: dict[str, dict[str, float]],
    tenants: Tenants | None = None,
) -> None:
    @in_loop
    async def run() -> None:
        front = FrontEnds(directory, KEYS, CREDENTIALS, quotas=quotas, tenants=tenants)
        await work(front)
        assert front.wiring.failures == []

    run()


def code_of(answer: object) -> str:
    """Empty if it went well."""
    if isinstance(answer, Response):
        return answer.code if answer.status >= 400 else ""
    return answer.code if isinstance(answer, queues.Refused) else ""


# ── each by native requests, routes and actions ───────────────────────────────────────────────────────────────────────

Ask = Callable[[FrontEnds, str, int], Awaitable[Any]]


class Way(NamedTuple):
    """How to use one more of something, the number of which is given, and to give it back, for a key's name."""

    use: Ask
    release: Ask
    refusal: str = "QuotaExceeded"
    before: Ask | None = None


async def native_queue(front: FrontEnds, name: str, number: int) -> Any:
    return await front.native(name, queues.CreateQueue(f"q{number}", QueueConfig()))


async def delete_queue(front: FrontEnds, name: str, number: int) -> Any:
    return await front.native(name, queues.DeleteQueue(f"q{number}"))


async def http_subscription(front: FrontEnds, name: str, number: int) -> Any:
    return await front.http(name, "POST", "/subscriptions", {"filter": "a = 1", "name": f"q{number}"})


async def delete_subscription(front: FrontEnds, name: str, number: int) -> Any:
    return await front.http(name, "DELETE", f"/subscriptions/q{number}")


async def native_subscription(front: FrontEnds, name: str, number: int) -> Any:
    return await front.native(name, subscriptions.Subscribe("a = 1", f"q{number}"))


async def unsubscribe(front: FrontEnds, name: str, number: int) -> Any:
    return await front.native(name, subscriptions.Unsubscribe(f"q{number}"))


async def sqs_queue(front: FrontEnds, name: str, number: int) -> Any:
    return await front.sqs(name, "CreateQueue", QueueName=f"q{number}")


async def delete_sqs_queue(front: FrontEnds, name: str, number: int) -> Any:
    return await front.sqs(name, "DeleteQueue", QueueUrl=f"q{number}")


async def native_send(front: FrontEnds, name: str, number: int) -> Any:
    return await front.native(name, queues.Send("q0", [queues.SendEntry(BODY.encode())]))


async def sqs_send(front: FrontEnds, name: str, number: int) -> Any:
    return await front.sqs(name, "SendMessage", QueueUrl="q0", MessageBody=BODY)


async def http_publish(front: FrontEnds, name: str, number: int) -> Any:
    return await front.http(name, "POST", "/publish", {"a": 1, "text": "x" * 60})


async def acknowledge_one(front: FrontEnds, name: str, number: int) -> Any:
    received = await front.native(name, queues.Receive("q0"))
    assert isinstance(received, queues.Received)
    return await front.native(name, queues.Acknowledge("q0", [received.deliveries[0].receipt]))


WAYS: dict[str, dict[str, Way]] = {
    "queues_max": {
        "native": Way(native_queue, delete_queue),
        "native subscription": Way(native_subscription, unsubscribe),
        "http": Way(http_subscription, delete_subscription),
        "sqs": Way(sqs_queue, delete_sqs_queue, "OverLimit"),
    },
    "subscriptions_max": {
        "native": Way(native_subscription, unsubscribe),
        "http": Way(http_subscription, delete_subscription),
    },
    "bytes_max": {
        "native": Way(native_send, acknowledge_one, before=native_queue),
        "http": Way(http_publish, acknowledge_one, before=http_subscription),
        "sqs": Way(sqs_send, acknowledge_one, "OverLimit", before=sqs_queue),
    },
}
CASES = [(quota, front) for quota, ways in WAYS.items() for front in ways]


@pytest.mark.parametrize(("quota", "by"), CASES)
def test_a_quota_of_what_is_kept(tmp_path: Path, quota: str, by: str) -> None:
    way = WAYS[quota][by]
    allowed = 3
    is_bytes = quota == "bytes_max"

    async def work(front: FrontEnds) -> None:
        for name in ("acme", "other"):
            if way.before is not None:
                assert code_of(await way.before(front, name, 0)) == ""
            for number in range(allowed):
                assert code_of(await way.use(front, name, number)) == "", number
        before = front.store.position
        assert code_of(await way.use(front, "acme", allowed)) == way.refusal
        assert front.store.position == before, "nothing has changed"
        assert code_of(await way.use(front, "other", allowed)) == "", "others have their own quota, or none"
        assert code_of(await way.release(front, "acme", 0)) == ""
        assert code_of(await way.use(front, "acme", allowed)) == ""
        assert code_of(await way.use(front, "acme", allowed + 1)) == way.refusal

    in_front(tmp_path, work, {"acme": {quota: 350 if is_bytes else allowed}})


# ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────────


class TicketConnection(FakeConnection):
    """With a place of its own, as one of the listener has it."""

    def __init__(self) -> None:
        super().__init__()
        self.ticket = ticket()

    def authenticated(self, tenant: Tenant) -> None:
        self.ticket.authenticated(tenant)
        super().authenticated(tenant)


class Connected(NamedTuple):
    code: str
    leave: Callable[[], None]


async def connect(front: FrontEnds, by: str, name: str) -> Connected:
    if by == "native":
        client: FakeClient = front.client(name)
        return Connected(code_of(client.answers()[0]), client.protocol._ticket.leave)
    connection = TicketConnection()
    if by == "http":
        opened = front.open("GET", "/subscriptions", {"authorization": f"Bearer {name}"}, connection=connection)
    else:
        headers = front.sqs_headers(name, "ListQueues", b"{}")
        opened = front.open("POST", "/", headers, b"{}", connection=connection)
    response = await opened.response()
    assert connection.is_authenticated is (response.status < 400)
    return Connected(code_of(response), connection.ticket.leave)


FRONTS = ("native", "http", "sqs")
REFUSALS = {"native": "QuotaExceeded", "http": "QuotaExceeded", "sqs": "OverLimit"}


@pytest.mark.parametrize("by", FRONTS)
@pytest.mark.parametrize("others", FRONTS)
def test_connections_of_all_protocols_are_counted_together(tmp_path: Path, by: str, others: str) -> None:
    async def work(front: FrontEnds) -> None:
        first, second = await connect(front, others, "acme"), await connect(front, by, "acme")
        assert (first.code, second.code) == ("", "")
        assert front.tenants.of("acme").connections == 2
        assert (await connect(front, by, "acme")).code == REFUSALS[by]
        assert (await connect(front, by, "other")).code == ""
        first.leave()
        first.leave()
        assert front.tenants.of("acme").connections == 1
        assert (await connect(front, by, "acme")).code == ""
        assert (await connect(front, others, "acme")).code == REFUSALS[others]

    in_front(tmp_path, work, {"acme": {"connections_max": 2}})


def test_a_connection_that_shows_another_key_belongs_to_that_one(tmp_path: Path) -> None:
    async def work(front: FrontEnds) -> None:
        connection = TicketConnection()
        for name in ("acme", "acme", "other", "acme"):
            opened = front.open("GET", "/subscriptions", {"authorization": f"Bearer {name}"}, connection=connection)
            assert (await opened.response()).status == 200
            assert front.tenants.of(name).connections == 1
        assert front.tenants.of("other").connections == 0

    in_front(tmp_path, work, {"acme": {"connections_max": 1}})


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def stream(front: FrontEnds, kind: str, name: str) -> tuple[Open, bool]:
    """And whether it began."""
    path = {"http": "/events?filter=a%20=%201", "websocket": "/stream?filter=a%20=%201"}[kind]
    opened = front.open_http(name, "GET", path, kind=kind)
    await until(lambda: bool(opened.sent))
    first = opened.sent[0]
    began = first["type"] == "websocket.accept" or first.get("status") == 200
    if not began:
        assert (await opened.response()).code == "QuotaExceeded"
        assert first["status"] == 429
    return opened, began


async def end(opened: Open, kind: str) -> None:
    opened.incoming.put_nowait({"type": f"{kind}.disconnect", "code": 1000})
    await opened.task


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_quota_of_streams(tmp_path: Path, kind: str) -> None:
    async def work(front: FrontEnds) -> None:
        opened = [await stream(front, each, "acme") for each in ("http", "websocket")]
        assert [began for _, began in opened] == [True, True]
        assert not (await stream(front, kind, "acme"))[1]
        other, began = await stream(front, kind, "other")
        assert began
        await end(other, kind)
        await end(opened[0][0], "http")
        again, began = await stream(front, kind, "acme")
        assert began
        await end(again, kind)
        await end(opened[1][0], "websocket")
        assert front.tenants.of("acme").streams == 0

    in_front(tmp_path, work, {"acme": {"streams_max": 2}})


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def ask(front: FrontEnds, by: str, name: str) -> Any:
    if by == "native":
        return await front.native(name, queues.ListQueues())
    if by == "http":
        return await front.http(name, "GET", "/subscriptions")
    return await front.sqs(name, "ListQueues")


@pytest.mark.parametrize("by", FRONTS)
@pytest.mark.parametrize("others", FRONTS)
def test_requests_of_all_protocols_are_counted_together(tmp_path: Path, by: str, others: str) -> None:
    throttled = {"native": "Overloaded", "http": "Overloaded", "sqs": "ThrottlingException"}
    quotas = {"acme": {"requests_per_s": 0.001}}

    async def work(front: FrontEnds) -> None:
        assert code_of(await ask(front, others, "acme")) == ""
        refused = await ask(front, by, "acme")
        assert code_of(refused) == throttled[by]
        if isinstance(refused, Response) and by == "http":
            assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        for _ in range(5):
            assert code_of(await ask(front, by, "other")) == ""
        front.write_keys(*KEYS, quotas={"acme": {"requests_per_s": 1000}})
        front.reload()
        assert code_of(await ask(front, by, "acme")) == ""

    in_front(tmp_path, work, quotas)


# ── the file ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_quota_that_is_changed_counts_from_then_on_and_nobody_is_shut_out(tmp_path: Path) -> None:
    async def work(front: FrontEnds) -> None:
        client = front.client("acme")
        for number in range(3):
            assert code_of(await native_queue(front, "acme", number)) == ""
        for allowed, code in ((2, "QuotaExceeded"), (4, ""), (4, "QuotaExceeded")):
            front.write_keys(*KEYS, quotas={"acme": {"queues_max": allowed}})
            front.reload()
            assert code_of(await native_queue(front, "acme", 3 if allowed == 4 and code == "" else 4)) == code
        assert code_of(await native_queue(front, "acme", 0)) == "", "one that is there is no new one"
        front.write_keys(*KEYS)
        front.reload()
        assert code_of(await native_queue(front, "acme", 4)) == ""
        assert not client.transport.is_closed

    in_front(tmp_path, work, {"acme": {"queues_max": 3}})


def test_what_is_not_set_has_the_servers_default_and_no_namespace_has_none(tmp_path: Path) -> None:
    async def work(front: FrontEnds) -> None:
        assert code_of(await native_queue(front, "other", 0)) == ""
        assert code_of(await native_queue(front, "other", 1)) == "QuotaExceeded"
        for number in range(3):
            assert code_of(await native_queue(front, "acme", number + 5)) == ""
            assert code_of(await native_queue(front, "operator", number)) == ""

        for number in range(2):
            assert code_of(await native_subscription(front, "acme", number)) == ("" if number == 0 else "QuotaExceeded")

    in_front(tmp_path, work, {"acme": {"queues_max": 9}}, Tenants(Quota(queues_max=1, subscriptions_max=1)))


def test_the_default_namespace_may_have_a_quota_too(tmp_path: Path) -> None:
    async def work(front: FrontEnds) -> None:
        assert code_of(await native_queue(front, "operator", 0)) == ""
        assert code_of(await native_queue(front, "operator", 1)) == "QuotaExceeded"

    in_front(tmp_path, work, {"": {"queues_max": 1}})


def test_a_quota_that_is_lower_than_what_there_is_keeps_nothing_from_opening(tmp_path: Path) -> None:
    async def work(front: FrontEnds) -> None:
        for number in range(3):
            await native_subscription(front, "acme", number)
        await http_publish(front, "acme", 0)
        again = replay(front.wiring.broker.snapshot(), [])
        again.queues.usages.quotas = Tenants(Quota(queues_max=0, bytes_max=0, subscriptions_max=0)).quotas
        assert again.subscriptions.count("acme") == 3
        assert again.queues.usages.of("acme").queues == 3
        assert again.queues.usages.of("acme").bytes == front.wiring.queues.usages.of("acme").bytes > 0

    in_front(tmp_path, work, {})


@pytest.mark.parametrize(
    "text",
    [
        '[[namespaces]]\nname = "a"\nqueues_max = -1\n',
        '[[namespaces]]\nname = "a"\nrequests_per_s = 0\n',
        '[[namespaces]]\nname = "a"\nqueue_max = 1\n',
        '[[namespaces]]\nname = "a/b"\n',
        "[[namespaces]]\nqueues_max = 1\n",
        '[[namespaces]]\nname = "a"\n[[namespaces]]\nname = "a"\n',
    ],
)
def test_a_file_with_a_mistake_changes_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text('[[namespaces]]\nname = "a"\nqueues_max = 7\n')
    ring = KeyRing(path)
    path.write_text(text)
    with pytest.raises(InvalidValue):
        ring.read()
    assert ring.tenants.quotas.of("a").queues_max == 7


# ── what operators see ────────────────────────────────────────────────────────────────────────────────────────────────


def test_metrics_show_what_is_used_and_what_may_be(tmp_path: Path) -> None:
    async def work(front: FrontEnds) -> None:
        for number in range(2):
            await native_subscription(front, "acme", number)
        connection = TicketConnection()
        connection.authenticated(front.tenants.of("acme"))
        broker, connections = front.wiring.broker, front.tenants.of("acme").connections
        assert connections > 0
        text = "".join(map(family_text, front.tenants.families(broker, 10)))
        assert 'lavant_namespace_subscriptions{namespace="acme"} 2\n' in text
        assert f'lavant_namespace_connections{{namespace="acme"}} {connections}\n' in text
        assert 'lavant_namespace_streams{namespace="acme"} 0\n' in text
        assert 'lavant_namespace_quota{namespace="acme",resource="queues"} 5\n' in text
        assert 'lavant_namespace_quota{namespace="acme",resource="requests_per_s"} 1000.0\n' in text
        shown = "".join(map(family_text, front.tenants.families(broker, 1)))
        assert 'namespace="acme"' in shown
        assert 'namespace="other"' not in shown, "only those with the most queues"

    in_front(tmp_path, work, {"acme": {"queues_max": 5, "requests_per_s": 1000}, "other": {"queues_max": 5}})


def test_sqs_clients_take_a_throttled_request_for_one_to_repeat() -> None:
    """The codes that botocore repeats by itself."""
    assert FAULTS["ThrottlingException"].code == "ThrottlingException"
    assert FAULTS["ThrottlingException"].status == 400


def test_a_tenant_that_nobody_knows_any_more_is_forgotten(tmp_path: Path) -> None:
    tenants = Tenants()
    path = tmp_path / "keys.toml"
    path.write_text("")
    ring = KeyRing(path, tenants=tenants)
    held = tenants.of("acme")
    assert len(tenants._tenants) == 1
    del held
    assert len(tenants._tenants) == 0
    assert len(ring) == 0

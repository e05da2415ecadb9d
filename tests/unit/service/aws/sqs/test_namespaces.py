"""SQS keeps to the namespace of its credentials: nothing is stolen, forged or learnt from others."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.front_ends import ARN, FrontEnds, Response, credential, key
from tests.unit.service.wiring import in_loop, until

from lavant.broker.protocol import queues as c
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.service.aws.credentials import Credential

SCOPES = ("publish", "subscribe", "admin")
CREDENTIALS = [
    credential("plain", *SCOPES),
    credential("acme", *SCOPES, namespace="acme"),
    credential("shop", *SCOPES, namespace="shop"),
    credential("mallory", *SCOPES, namespace="acme"),
]
KEYS = [key("operator", *SCOPES)]
URL = "http://queues.test/000000000000/"


def policy(queue: str, count: int = 1) -> str:
    return json.dumps({"deadLetterTargetArn": ARN + queue, "maxReceiveCount": count})


async def shop_with_dead_letters(front: FrontEnds) -> None:
    """Queue `orders` of shop has a dead letter, whose queue is `dead`; and one message."""
    for queue in ("dead", "orders"):
        assert (await front.sqs("shop", "CreateQueue", QueueName=queue)).status == 200
    attributes = {"RedrivePolicy": policy("dead"), "VisibilityTimeout": "0"}
    assert (await front.sqs("shop", "SetQueueAttributes", QueueUrl="orders", Attributes=attributes)).status == 200
    await front.sqs("shop", "SendMessage", QueueUrl="orders", MessageBody="shop's")
    for _ in range(2):
        await front.sqs("shop", "ReceiveMessage", QueueUrl="orders", WaitTimeSeconds=0)
    await front.sqs("shop", "SendMessage", QueueUrl="orders", MessageBody="more of shop's")


def in_front_of(work: Callable[[FrontEnds], Coroutine[Any, Any, None]], directory: Path) -> None:
    @in_loop
    async def run() -> None:
        front = FrontEnds(directory, KEYS, CREDENTIALS)
        await work(front)
        assert front.wiring.failures == []

    run()


def seen(response: Response) -> tuple[int, dict[str, str], bytes]:
    """All that a client learns, but for what differs from request to request."""
    headers = {name: value for name, value in response.headers.items() if name != "x-amzn-requestid"}
    return response.status, headers, response.body


NAMED: dict[str, Callable[[str], dict[str, Any]]] = {
    "GetQueueUrl": lambda name: {"QueueName": name},
    "ListQueues": lambda name: {"QueueNamePrefix": name},
    "ListDeadLetterSourceQueues": lambda name: {"QueueUrl": URL + name},
    "StartMessageMoveTask": lambda name: {"SourceArn": ARN + name},
    "ListMessageMoveTasks": lambda name: {"SourceArn": ARN + name},
    "GetQueueAttributes": lambda name: {"QueueUrl": URL + name, "AttributeNames": ["All"]},
    "ListQueueTags": lambda name: {"QueueUrl": URL + name},
    "TagQueue": lambda name: {"QueueUrl": URL + name, "Tags": {"a": "b"}},
    "UntagQueue": lambda name: {"QueueUrl": URL + name, "TagKeys": ["a"]},
    "SendMessage": lambda name: {"QueueUrl": URL + name, "MessageBody": "forged"},
    "SendMessageBatch": lambda name: {"QueueUrl": URL + name, "Entries": [{"Id": "1", "MessageBody": "forged"}]},
    "ReceiveMessage": lambda name: {"QueueUrl": URL + name, "WaitTimeSeconds": 0},
    "PurgeQueue": lambda name: {"QueueUrl": URL + name},
    "DeleteQueue": lambda name: {"QueueUrl": URL + name},
    "SetQueueAttributes": lambda name: {"QueueUrl": URL + name, "Attributes": {"DelaySeconds": "1"}},
    "SetQueueAttributes of a policy": lambda name: {
        "QueueUrl": URL + "mine",
        "Attributes": {"RedrivePolicy": policy(name)},
    },
    "CreateQueue with a policy": lambda name: {"QueueName": "new", "Attributes": {"RedrivePolicy": policy(name)}},
    "StartMessageMoveTask elsewhere": lambda name: {"SourceArn": ARN + "mine", "DestinationArn": ARN + name},
}
THERE, NOT_THERE = ("dead", "orders"), ("daed", "oredrs")


@pytest.mark.parametrize("who", ["acme", "plain"])
@pytest.mark.parametrize("prefix", ["", "shop/", "x:shop/", "../shop/", "shop%2F"])
def test_what_others_have_is_answered_as_if_it_were_not_there(tmp_path: Path, who: str, prefix: str) -> None:
    async def work(front: FrontEnds) -> None:
        await shop_with_dead_letters(front)
        await front.sqs(who, "CreateQueue", QueueName="mine")
        await front.sqs(who, "CreateQueue", QueueName="source", Attributes={"RedrivePolicy": policy("mine")})
        before = [await front.native("operator", c.DescribeQueue(f"shop/{queue}")) for queue in THERE]
        for asked, members in NAMED.items():
            action = asked.partition(" ")[0]
            for there, not_there in zip(THERE, NOT_THERE, strict=True):
                found = await front.sqs(who, action, **members(prefix + there))
                missing = await front.sqs(who, action, **members(prefix + not_there))
                expected = missing._replace(body=missing.body.replace(not_there.encode(), there.encode()))
                assert seen(found) == seen(expected), asked
                assert b"shop's" not in found.body
        assert before == [await front.native("operator", c.DescribeQueue(f"shop/{queue}")) for queue in THERE]

    in_front_of(work, tmp_path)


@pytest.mark.parametrize("who", ["acme", "plain"])
def test_handles_of_others_are_good_for_nothing(tmp_path: Path, who: str) -> None:
    async def work(front: FrontEnds) -> None:
        await shop_with_dead_letters(front)
        for queue in ("orders", "dead"):
            await front.sqs(who, "CreateQueue", QueueName=queue)
        started = await front.sqs(
            "shop", "StartMessageMoveTask", SourceArn=ARN + "dead", MaxNumberOfMessagesPerSecond=1
        )
        received = await front.sqs("shop", "ReceiveMessage", QueueUrl="orders", WaitTimeSeconds=0, VisibilityTimeout=60)
        task, [message] = started.json["TaskHandle"], received.json["Messages"]
        receipt = message["ReceiptHandle"]
        members = {"QueueUrl": "orders", "ReceiptHandle": receipt}
        entries = {"QueueUrl": "orders", "Entries": [{"Id": "1", "ReceiptHandle": receipt, "VisibilityTimeout": 0}]}
        before = await front.native("operator", c.DescribeQueue("shop/orders"))
        assert (await front.sqs(who, "CancelMessageMoveTask", TaskHandle=task)).status in (400, 404)
        assert (await front.sqs(who, "DeleteMessage", **members)).code == "ReceiptHandleIsInvalid"
        assert (
            await front.sqs(who, "ChangeMessageVisibility", **members, VisibilityTimeout=0)
        ).code == "ReceiptHandleIsInvalid"
        for action in ("DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
            [failed] = (await front.sqs(who, action, **entries)).json["Failed"]
            assert failed["Code"] == "ReceiptHandleIsInvalid"
        assert before == await front.native("operator", c.DescribeQueue("shop/orders"))
        [move] = (await front.sqs("shop", "ListMessageMoveTasks", SourceArn=ARN + "dead")).json["Results"]
        assert move["Status"] in ("RUNNING", "COMPLETED")
        assert (await front.sqs(who, "ListMessageMoveTasks", SourceArn=ARN + "dead")).json == {}

    in_front_of(work, tmp_path)


def test_a_task_of_others_cannot_be_cancelled_by_guessing_its_number(tmp_path: Path) -> None:
    """Two credentials of one namespace share handles; those of two do not, in no protocol."""
    keys = [*KEYS, key("shop-admin", "admin", namespace="shop"), key("acme-admin", "admin", namespace="acme")]

    @in_loop
    async def work() -> None:
        front = FrontEnds(tmp_path, keys, CREDENTIALS)
        await shop_with_dead_letters(front)
        for queue in ("a", "b", "c"):
            await front.native("operator", c.Send("shop/dead", [c.SendEntry(queue.encode())]))
        started = await front.native("operator", c.StartMove("shop/dead", "shop/orders", 1))
        assert isinstance(started, c.MoveStarted)
        refused = await front.native("acme-admin", c.CancelMove(started.task))
        unknown = await front.native("acme-admin", c.CancelMove(started.task + 7))
        assert isinstance(refused, c.Refused)
        assert isinstance(unknown, c.Refused)
        assert (refused.code, refused.reason) == (
            unknown.code,
            unknown.reason.replace(str(started.task + 7), str(started.task)),
        )
        cancelled = await front.native("shop-admin", c.CancelMove(started.task))
        assert isinstance(cancelled, c.Moved)
        assert (cancelled.state.status, cancelled.state.source) == ("cancelled", "dead")

    work()


def test_dead_letters_of_others_do_not_go_back_to_them(tmp_path: Path) -> None:
    """An operator had shop's dead letters go to acme, which may have them, and may put nothing into shop."""
    keys = [*KEYS, key("acme-admin", *SCOPES, namespace="acme")]

    @in_loop
    async def work() -> None:
        front = FrontEnds(tmp_path, keys, CREDENTIALS)
        await front.native("operator", c.CreateQueue("acme/dead", QueueConfig()))
        config = QueueConfig(dead_letters="acme/dead", receives_max=1, visibility_ms=0)
        await front.native("operator", c.CreateQueue("shop/orders", config))
        await front.native("operator", c.Send("shop/orders", [c.SendEntry(b"shop's")]))
        for _ in range(2):
            await front.sqs("shop", "ReceiveMessage", QueueUrl="orders", WaitTimeSeconds=0)
        peeked = await front.native("acme-admin", c.Peek("dead"))
        assert isinstance(peeked, c.Peeked)
        assert [each.origin for each in peeked.messages] == [None]
        received = await front.sqs(
            "acme", "ReceiveMessage", QueueUrl="dead", VisibilityTimeout=0, AttributeNames=["All"]
        )
        assert b"shop/" not in received.body
        assert "DeadLetterQueueSourceArn" not in received.json["Messages"][0]["Attributes"]
        assert (await front.native("acme-admin", c.ListSources("dead"))) == c.Listed([])
        started = await front.native("acme-admin", c.StartMove("dead"))
        assert isinstance(started, c.MoveStarted)
        await until(lambda: not front.wiring.queues.moves_running())
        moves = await front.native("acme-admin", c.ListMoves("dead"))
        assert isinstance(moves, c.Moves)
        assert (moves.moves[0].status, "another namespace" in moves.moves[0].reason) == ("failed", True)
        assert "shop" not in moves.moves[0].reason
        assert "shop" not in str(await front.native("acme-admin", c.DescribeQueue("dead")))
        # The operator may.
        assert isinstance(await front.native("operator", c.StartMove("acme/dead")), c.MoveStarted)
        await until(lambda: not front.wiring.queues.moves_running())
        described = await front.native("operator", c.DescribeQueue("shop/orders"))
        assert isinstance(described, c.Described)
        assert described.figures.visible == 1

    work()


def test_two_namespaces_and_none_have_queues_of_one_name(tmp_path: Path) -> None:
    async def work(front: FrontEnds) -> None:
        for who in ("plain", "acme", "shop"):
            created = await front.sqs(who, "CreateQueue", QueueName="orders")
            assert created.json["QueueUrl"] == URL + "orders"
            await front.sqs(who, "SendMessage", QueueUrl="orders", MessageBody=who)
        for who in ("plain", "acme", "shop"):
            assert (await front.sqs(who, "ListQueues")).json["QueueUrls"] == [URL + "orders"]
            received = await front.sqs(who, "ReceiveMessage", QueueUrl="orders", MaxNumberOfMessages=10)
            [message] = received.json["Messages"]
            assert message["Body"] == who
            deleted = {"QueueUrl": "orders", "ReceiptHandle": message["ReceiptHandle"]}
            assert (await front.sqs(who, "DeleteMessage", **deleted)).status == 200
        listed = await front.native("operator", c.ListQueues())
        assert listed == c.Listed(["acme/orders", "orders", "shop/orders"])
        # One namespace may have several credentials.
        assert (await front.sqs("mallory", "GetQueueUrl", QueueName="orders")).status == 200

    in_front_of(work, tmp_path)


def test_pages_end_with_the_namespace(tmp_path: Path) -> None:
    async def work(front: FrontEnds) -> None:
        for who in ("acme", "shop", "plain"):
            for number in range(5):
                await front.sqs(who, "CreateQueue", QueueName=f"q{number}")
        for who in ("acme", "shop", "plain"):
            names: list[str] = []
            token: dict[str, str] = {}
            while True:
                page = (await front.sqs(who, "ListQueues", MaxResults=2, **token)).json
                names += page["QueueUrls"]
                if "NextToken" not in page:
                    break
                token = {"NextToken": page["NextToken"]}
            assert names == [f"{URL}q{number}" for number in range(5)]

    in_front_of(work, tmp_path)


@pytest.mark.parametrize(
    ("keys", "credentials", "is_sqs_open", "is_native_open"),
    [
        (None, None, True, True),
        (KEYS, None, False, False),
        (None, CREDENTIALS, False, False),
        (KEYS, CREDENTIALS, False, False),
    ],
)
def test_one_file_closes_all_doors(
    tmp_path: Path, keys: Any, credentials: list[Credential] | None, is_sqs_open: bool, is_native_open: bool
) -> None:
    @in_loop
    async def work() -> None:
        front = FrontEnds(tmp_path, keys, credentials)
        for name in ("", "nobody"):
            assert ((await front.sqs(name, "ListQueues")).status == 200) is is_sqs_open
            assert isinstance(await front.native(name, c.ListQueues()), c.Listed) is is_native_open
            assert ((await front.http(name, "GET", "/subscriptions")).status == 200) is is_native_open
        if credentials is not None:
            assert (await front.sqs("plain", "ListQueues")).status == 200
        if keys is not None:
            assert isinstance(await front.native("operator", c.ListQueues()), c.Listed)

    work()

"""Message move tasks."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.aws.sqs.talking import Script, ask, described

from lavant.broker.protocol.queues import (
    CancelMove,
    DescribeQueue,
    Listed,
    ListMoves,
    ListSources,
    Moved,
    Moves,
    MoveStarted,
    MoveState,
    Refused,
    StartMove,
)
from lavant.service.aws.sqs.handles import Handles

SEALS = Handles(b"salt")
ARN = "arn:aws:sqs:us-east-1:000000000000:"
NO_QUEUE = Refused("UnknownQueue", "no")


def state(task: int = 7, status: str = "running", **members: Any) -> MoveState:
    values: dict[str, Any] = {"destination": None, "rate_per_s": None, "moved": 1, "reason": ""} | members
    return MoveState(task=task, source="dead", started_ms=1_700_000_000_123, total=5, status=status, **values)


def test_a_move_goes_back_to_the_sources_by_default() -> None:
    broker = Script(described(), Listed(["orders"]), MoveStarted(7))
    response = ask(broker, "StartMessageMoveTask", SourceArn=ARN + "dead")
    assert response.json == {"TaskHandle": SEALS.task_handle(7)}
    assert broker.asked == [DescribeQueue("dead"), ListSources("dead"), StartMove("dead", namespace="")]


def test_a_move_may_go_elsewhere_and_slowly() -> None:
    broker = Script(described(), Listed(["orders"]), described(), MoveStarted(7))
    members = {"SourceArn": ARN + "dead", "DestinationArn": ARN + "else", "MaxNumberOfMessagesPerSecond": 500}
    assert ask(broker, "StartMessageMoveTask", **members).status == 200
    assert broker.asked[3] == StartMove("dead", "else", 500, namespace="")


@pytest.mark.parametrize(
    ("answers", "members", "code"),
    [
        ([NO_QUEUE], {}, "ResourceNotFoundException"),
        ([described(), Listed([])], {}, "InvalidParameterValue"),
        ([described(), Listed(["a"]), NO_QUEUE], {"DestinationArn": ARN + "else"}, "ResourceNotFoundException"),
        ([described(), Listed(["a"]), Refused("MoveRunning", "already")], {}, "InvalidParameterValue"),
        ([], {"MaxNumberOfMessagesPerSecond": 0}, "InvalidParameterValue"),
        ([], {"MaxNumberOfMessagesPerSecond": 501}, "InvalidParameterValue"),
        ([], {"SourceArn": "dead"}, "InvalidParameterValue"),
        ([], {"SourceArn": None}, "MissingParameter"),
        ([described(), Listed(["a"])], {"DestinationArn": "else"}, "InvalidParameterValue"),
    ],
)
def test_a_move_that_cannot_be_is_refused(answers: list[Any], members: dict[str, Any], code: str) -> None:
    response = ask(Script(*answers), "StartMessageMoveTask", **{"SourceArn": ARN + "dead"} | members)
    assert response.code == code
    assert response.status == (404 if code == "ResourceNotFoundException" else 400)


def test_the_newest_moves_are_listed_first_and_only_running_ones_have_handles() -> None:
    moves = Moves(
        [
            state(1, "failed", reason="full", moved=2),
            state(2, "cancelled"),
            state(4, "running", destination="else", rate_per_s=9, moved=0),
            state(3, "completed"),
        ]
    )
    broker = Script(described(), moves)
    listed = ask(broker, "ListMessageMoveTasks", SourceArn=ARN + "dead", MaxResults=10).json["Results"]
    assert broker.asked[1] == ListMoves("dead")
    assert [move["Status"] for move in listed] == ["RUNNING", "COMPLETED", "CANCELLED", "FAILED"]
    assert listed[0] == {
        "TaskHandle": SEALS.task_handle(4),
        "Status": "RUNNING",
        "SourceArn": ARN + "dead",
        "DestinationArn": ARN + "else",
        "MaxNumberOfMessagesPerSecond": 9,
        "ApproximateNumberOfMessagesMoved": 0,
        "ApproximateNumberOfMessagesToMove": 5,
        "StartedTimestamp": 1_700_000_000_123,
    }
    assert listed[3]["FailureReason"] == "full"
    assert [("TaskHandle" in move, "FailureReason" in move) for move in listed[1:3]] == [(False, False)] * 2
    assert len(ask(Script(described(), moves), "ListMessageMoveTasks", SourceArn=ARN + "dead").json["Results"]) == 1


def test_listing_has_bounds_and_needs_a_queue() -> None:
    for count in (0, 11):
        response = ask(Script(), "ListMessageMoveTasks", SourceArn=ARN + "dead", MaxResults=count)
        assert response.code == "InvalidParameterValue"
    assert ask(Script(NO_QUEUE), "ListMessageMoveTasks", SourceArn=ARN + "dead").code == "ResourceNotFoundException"


def test_a_move_is_cancelled_by_its_handle() -> None:
    broker = Script(Moved(state(7, "cancelled", moved=3)))
    response = ask(broker, "CancelMessageMoveTask", TaskHandle=SEALS.task_handle(7))
    assert response.json == {"ApproximateNumberOfMessagesMoved": 3}
    assert broker.asked == [CancelMove(7, namespace="")]
    assert ask(Script(), "CancelMessageMoveTask", TaskHandle="x").code == "InvalidParameterValue"
    unknown = Script(Refused("UnknownMove", "no such move"))
    assert ask(unknown, "CancelMessageMoveTask", TaskHandle=SEALS.task_handle(7)).code == "ResourceNotFoundException"

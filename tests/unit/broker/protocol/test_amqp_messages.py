"""What travels through RabbitMQ."""

from __future__ import annotations

import pytest

from lavant.broker.protocol.amqp_messages import (
    QUEUE_ARGUMENTS,
    AttemptKey,
    Command,
    Relayed,
    Report,
    check_address,
    decode_answer,
    decode_relayed,
    decode_report,
    encode,
    redacted,
)
from lavant.broker.protocol.jobs import CompleteTask, ExtendTask, FailTask, Reported, Result, TaskAssignment
from lavant.broker.protocol.queues import Refused
from lavant.broker.workflows.definitions.definition import TASK_TIMEOUT_MS_MAX
from lavant.core.errors import InvalidValue

TASK = Relayed("A", TaskAssignment(7, "type-1", "unpack", 2, 5, b"\x00\xff", {"load": Result(b"x", {"n": 1})}, 60_000))


def test_a_task_comes_out_as_it_went_in() -> None:
    assert decode_relayed(encode(TASK)) == TASK
    assert TASK.key == AttemptKey(7, "unpack", 2)
    assert str(TASK.key) == "attempt 2 at task 'unpack' of job 7"


@pytest.mark.parametrize(
    "command",
    [
        CompleteTask(7, "unpack", 2, Result(b"\xff")),
        FailTask(7, "unpack", 2, "why", True),
        ExtendTask(7, "unpack", 2, 9),
    ],
)
def test_a_report_comes_out_as_it_went_in(command: Command) -> None:
    report = Report("A", "ann", command)
    assert decode_report(encode(report)) == report
    assert report.key == TASK.key


@pytest.mark.parametrize("answer", [Reported(True, "running", 9), Refused("AttemptOver", "too late")])
def test_an_answer_comes_out_as_it_went_in(answer: Reported | Refused) -> None:
    assert decode_answer(encode(answer)) == answer


@pytest.mark.parametrize("body", [b"", b"\xc1", b"{}", encode(["A"]), encode(TASK)[:-1]])
def test_what_is_neither_is_refused_with_its_size(body: bytes) -> None:
    for decode in (decode_relayed, decode_report, decode_answer):
        with pytest.raises(InvalidValue, match=f"a message of {len(body)} bytes is no .* of Lavant's"):
            decode(body)


def test_messages_may_stay_with_a_worker_as_long_as_a_task_may_take() -> None:
    timeout_ms = QUEUE_ARGUMENTS["x-consumer-timeout"]
    assert isinstance(timeout_ms, int)
    assert timeout_ms > TASK_TIMEOUT_MS_MAX


@pytest.mark.parametrize(
    "url", ["amqp://ann:s:e@c/ret@h/v", "amqps://ann:secret@[::1]:5671/?x=secret", "http://a:secret@h"]
)
def test_an_address_is_shown_without_its_password(url: str) -> None:
    assert "ret" not in redacted(url)
    assert "ann" in redacted(url) or "a@" in redacted(url)


def test_an_address_of_something_else_is_refused_without_its_password() -> None:
    with pytest.raises(InvalidValue) as caught:
        check_address("redis://ann:secret@h")
    assert "secret" not in str(caught.value)

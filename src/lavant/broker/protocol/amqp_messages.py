"""Messages of tasks and reports that pass through RabbitMQ, and the names of its queues.

    server ──Relayed──► lavant.topic.A ──► worker
    server ◄── lavant.reports ◄──Report── worker
    server ──Reported or Refused──► worker, if the report asks for an answer

Lavant keeps the jobs. RabbitMQ may deliver a message twice, or late; (job, task, attempt) in it identifies the attempt.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from lavant.broker.protocol.jobs import CompleteTask, ExtendTask, FailTask, Reported, TaskAssignment
from lavant.broker.protocol.queue_config import MINUTE_MS
from lavant.broker.protocol.queues import Refused
from lavant.broker.workflows.definitions.definition import TASK_TIMEOUT_MS_MAX
from lavant.core.errors import UNDECODABLE, AccessDenied, InvalidValue, MissingComponent

REPORTS = "lavant.reports"
CONTENT_TYPE = "application/msgpack"

QUEUE_ARGUMENTS: dict[str, str | int] = {
    "x-queue-type": "quorum",
    "x-consumer-timeout": TASK_TIMEOUT_MS_MAX + MINUTE_MS,
}
"""A message stays unacknowledged as long as its task takes. Servers before 3.12 ignore the second argument, and close
the channel after half an hour (`consumer_timeout`): the worker continues, and opens another."""

Command: TypeAlias = CompleteTask | FailTask | ExtendTask
_T = TypeVar("_T")


def task_queue(topic: str) -> str:
    """
    >>> task_queue("A")
    'lavant.topic.A'
    """
    return f"lavant.topic.{topic}"


class AttemptKey(NamedTuple):
    """Identifies an attempt."""

    job: int
    task: str
    attempt: int

    def __str__(self) -> str:
        return f"attempt {self.attempt} at task {self.task!r} of job {self.job}"


class Relayed(msgspec.Struct, frozen=True, array_like=True):
    """A task for any worker of its topic."""

    topic: str
    assignment: TaskAssignment

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.assignment.job, self.assignment.task, self.assignment.attempt)


class Report(msgspec.Struct, frozen=True, array_like=True):
    """A worker's report about a task. The first report of an attempt assigns it to that worker."""

    topic: str
    worker: str
    command: Command

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.command.job, self.command.task, self.command.attempt)


encode = msgspec.msgpack.Encoder().encode
_relayed = msgspec.msgpack.Decoder(Relayed)
_report = msgspec.msgpack.Decoder(Report)
_answer: msgspec.msgpack.Decoder[Reported | Refused] = msgspec.msgpack.Decoder(Reported | Refused)


def decode_relayed(body: bytes) -> Relayed:
    return _decoded(_relayed, body, "task")


def decode_report(body: bytes) -> Report:
    return _decoded(_report, body, "report")


def decode_answer(body: bytes) -> Reported | Refused:
    return _decoded(_answer, body, "answer")


def _decoded(decoder: msgspec.msgpack.Decoder[_T], body: bytes, what: str) -> _T:
    try:
        return decoder.decode(body)
    except UNDECODABLE as error:
        raise InvalidValue(f"a message of {len(body)} bytes is no {what} of Lavant's: {error}") from None


# ── addresses and errors ──────────────────────────────────────────────────────────────────────────────────────────────


def is_amqp(url: str) -> bool:
    """
    >>> is_amqp("amqps://ann:secret@queues.example/"), is_amqp("lavant://127.0.0.1")
    (True, False)
    """
    return url.startswith(("amqp://", "amqps://"))


def redacted(url: str) -> str:
    """The address without its password.

    >>> redacted("amqp://ann:se@cret@queues.example:5672/work?heartbeat=5")
    'amqp://ann@queues.example:5672/work'
    """
    scheme, _, rest = url.partition("?")[0].partition("://")
    login, at, host = rest.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}{at}{host}"


def check_address(url: str) -> str:
    """
    >>> check_address("http://queues.example")
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: RabbitMQ's address must look like amqp://USER:PASSWORD@HOST:5672/, got 'http://queues.example'
    """
    if not is_amqp(url):
        raise InvalidValue(f"RabbitMQ's address must look like amqp://USER:PASSWORD@HOST:5672/, got {redacted(url)!r}")
    return url


def unreachable(url: str, error: BaseException) -> MissingComponent:
    said = str(error) or type(error).__name__
    return MissingComponent(f"RabbitMQ does not answer at {redacted(url)}: {said}; see that it runs, and the address")


def locked_out(url: str, why: str) -> AccessDenied:
    return AccessDenied(
        f"RabbitMQ at {redacted(url)} does not let us in: {why}; see to user, password and virtual host of the address"
    )

"""Validation of requests about jobs, and of queue requests on the queues of topics."""

from __future__ import annotations

from typing import Any

from lavant.broker.protocol.jobs import KeepJobs, LeaseTasks, Result, SubmitJob
from lavant.broker.protocol.queues import (
    Acknowledge,
    ChangeVisibility,
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    PurgeQueue,
    Receive,
    Release,
    Send,
    StartMove,
)
from lavant.broker.queues.validation import check_range
from lavant.broker.workflows.definitions.definition import TASK_TIMEOUT_MS_MAX
from lavant.broker.workflows.limits import (
    INPUT_BYTES_MAX,
    JOB_NAME_CHARACTERS_MAX,
    KEPT_BYTES_MAX,
    KEPT_MAX,
    KEPT_MS_MAX,
    LEASE_WAIT_MS_MAX,
    LEASED_MAX,
    RESULT_ATTRIBUTES_MAX,
    RESULT_BYTES_MAX,
    WORKER_CHARACTERS_MAX,
)
from lavant.broker.workflows.topics import Topics
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.publications.attributes import check_name, check_value

_WITH_CONFIG = frozenset((CreateQueue, ConfigureQueue))
_OF_LETTERS = frozenset((*_WITH_CONFIG, DeleteQueue, Send))
_OF_TASKS = frozenset((*_OF_LETTERS, Receive, Acknowledge, ChangeVisibility, Release, PurgeQueue))


def check_submission(request: SubmitJob) -> None:
    if len(request.input) > INPUT_BYTES_MAX:
        raise LimitExceeded(
            f"the input of a job has {len(request.input)} bytes, at most {INPUT_BYTES_MAX} are allowed; store it "
            "elsewhere, and submit its location"
        )
    check_range("the length of a job's name", len(request.name), 0, JOB_NAME_CHARACTERS_MAX)


def check_lease(request: LeaseTasks) -> None:
    check_range("count", request.count, 1, LEASED_MAX)
    check_range("the length of a worker's name", len(request.worker), 1, WORKER_CHARACTERS_MAX)
    if request.wait_ms is not None:
        check_range("wait_ms", request.wait_ms, 0, LEASE_WAIT_MS_MAX)
    if request.lease_ms is not None:
        check_range("lease_ms", request.lease_ms, 1, TASK_TIMEOUT_MS_MAX)


def check_result(result: Result) -> None:
    if len(result.attributes) > RESULT_ATTRIBUTES_MAX:
        raise LimitExceeded(
            f"a result has {len(result.attributes)} attributes, at most {RESULT_ATTRIBUTES_MAX} are allowed; "
            "use its body for the others"
        )
    size_bytes = len(result.body)
    for name, value in result.attributes.items():
        check_value(check_name(name), value)
        if isinstance(value, str):
            size_bytes += len(value)
    if size_bytes > RESULT_BYTES_MAX:
        raise LimitExceeded(
            f"a result has {size_bytes} bytes, at most {RESULT_BYTES_MAX} are allowed; store it elsewhere, and "
            "report its location"
        )


def check_keeping(request: KeepJobs) -> None:
    check_range("count_max", request.count_max, 0, KEPT_MAX)
    check_range("bytes_max", request.bytes_max, 0, KEPT_BYTES_MAX)
    check_range("ms_max", request.ms_max, 0, KEPT_MS_MAX)


def check_foreign(request: Any, topics: Topics) -> None:
    """Refuse queue requests that would touch the messages of jobs: a task would be lost, or never done."""
    kind = type(request)
    if kind in _OF_TASKS:
        _refuse_tasks(kind, request.queue, topics)
    elif kind is StartMove:
        _refuse_tasks(kind, request.source, topics)
        _refuse_tasks(kind, request.destination, topics)
    if kind in _WITH_CONFIG:
        _refuse_tasks(kind, request.config.dead_letters, topics)
    if kind in _OF_LETTERS and request.queue in topics.letter_queues:
        raise InvalidValue(
            f"queue {request.queue!r} takes the dead letters of jobs, and {kind.__name__} is not for it; receive and "
            "acknowledge them, or purge it"
        )


def _refuse_tasks(kind: type, queue: str | None, topics: Topics) -> None:
    if queue in topics.queues:
        raise InvalidValue(
            f"queue {queue!r} holds tasks of jobs, and {kind.__name__} is not for it; submit jobs, and lease and "
            "report their tasks"
        )

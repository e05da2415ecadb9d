"""Encoded views of jobs, as clients see them and as ended jobs are stored: the bytes of a `JobView`.

An answer may wait for the disk while its job goes on, and there may be very many ended jobs. Bytes serve both: they do
not change, and hold a job with its timeline in a few hundred bytes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from lavant.broker.protocol.jobs import JobSummary, JobView, Result
from lavant.broker.workflows.job import COMPLETED, RUNNING, Job

TAG = "job"
DIGEST_BYTES = 16
_NO_RESULTS: dict[str, Result] = {}
_encode = msgspec.msgpack.Encoder().encode
decode_view = msgspec.msgpack.Decoder(JobView).decode


def encode_view(job: Job, state: str = RUNNING, reason: str = "", ended_ms: int = 0) -> bytes:
    """Encode the layout of `JobView` directly from the job."""
    tasks: list[Any] = [
        (step.definition.name, step.definition.topic, task.state, task.attempts)
        for step, task in zip(job.type.steps, job.tasks, strict=True)
    ]
    return _encode(
        (
            TAG,
            job.number,
            job.type.name,
            job.name,
            state,
            reason,
            job.submitted_ms,
            ended_ms,
            tasks,
            job.results(),
            job.input if state not in (RUNNING, COMPLETED) else b"",
            input_digest(job.input) if state == COMPLETED else b"",
            *((job.trace,) if job.trace.parent else ()),
        )
    )


def input_digest(input_: bytes) -> bytes:
    return blake2b(input_, digest_size=DIGEST_BYTES).digest()


def is_same(job: Job | bytes, job_type: str, input_: bytes) -> bool:
    """Whether a job equals a submission, as far as known from data of older versions."""
    if isinstance(job, Job):
        return (job.type.name, job.input) == (job_type, input_)
    view = decode_view(job)
    if view.job_type != job_type:
        return False
    if view.state == COMPLETED:
        return view.input_digest in (b"", input_digest(input_))
    return view.input == input_


def view_of(job: Job | bytes) -> JobView:
    return decode_view(job if isinstance(job, bytes) else encode_view(job))


def summary_of(job: Job | bytes) -> JobSummary:
    if isinstance(job, Job):
        return JobSummary(job.number, job.type.name, job.name, RUNNING, job.submitted_ms, 0)
    view = decode_view(job)
    return JobSummary(view.number, view.job_type, view.name, view.state, view.submitted_ms, view.ended_ms)

"""Limits of jobs and of requests about jobs; those of a definition are in `definitions`.

`JobLimits` decide whether a job is accepted, never what becomes of it: a journal written under other limits replays the
same. The constants bound a single request.
"""

from __future__ import annotations

import msgspec

from lavant.broker.protocol.queue_config import DAY_MS, WAIT_MS_MAX

INPUT_BYTES_MAX = 1 << 20
RESULT_BYTES_MAX = 256 << 10
"""An assignment with its input and all results before it fits into a frame."""
RESULT_ATTRIBUTES_MAX = 64
REASON_CHARACTERS_MAX = 2000
WORKER_CHARACTERS_MAX = 128
JOB_NAME_CHARACTERS_MAX = 128
LEASED_MAX = 100
LEASED_BYTES_MAX = 8 << 20
"""Per answer to a lease; the last assignment may exceed it."""
LISTED_MAX = 1000
LOOKED_AT_MAX = 10_000
"""Jobs scanned by one listing that filters by state."""
LEASE_WAIT_MS_MAX = WAIT_MS_MAX
DEAD_LETTERS_MAX = 100_000
"""Per topic; the oldest is dropped when one more comes."""
KEPT_MS_MAX = 30 * DAY_MS
KEPT_MAX = 10_000_000
KEPT_BYTES_MAX = 1 << 40

RESULTS_SHARE = 8
"""Results are accepted up to an eighth beyond the memory limit, since jobs that proceed free memory; then only empty
ones.
"""


class JobLimits(msgspec.Struct, frozen=True):
    running_max: int = 1_000_000
    bytes_max: int = 4 << 30
    """Of the inputs and results of all running jobs, which are held in memory; beyond it no job is accepted."""


DEFAULT_JOB_LIMITS = JobLimits()
UNLIMITED_JOBS = JobLimits(1 << 62, 1 << 62)
"""For replay: a command that was accepted once is never refused."""
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 1000, 366 * 24 * 3600 * 1000
"""Of a schedule."""

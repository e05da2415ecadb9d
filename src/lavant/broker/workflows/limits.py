"""The bounds of jobs in a hub; those of a definition are in `definitions`.

`JobLimits` decide whether a job is accepted, never what becomes of it: a journal written under other limits replays the
same. The constants bound what one request may carry.
"""

from __future__ import annotations

import msgspec

from lavant.broker.protocol.queue_config import DAY_MS, WAIT_MS_MAX

INPUT_BYTES_MAX = 1 << 20
RESULT_BYTES_MAX = 256 << 10
"""With the results of all tasks before it, and the input, an assignment fits into a frame."""
RESULT_ATTRIBUTES_MAX = 64
REASON_CHARACTERS_MAX = 2000
WORKER_CHARACTERS_MAX = 128
JOB_NAME_CHARACTERS_MAX = 128
LEASED_MAX = 100
LEASED_BYTES_MAX = 8 << 20
"""Of one answer to a lease; the last assignment may be over it."""
LISTED_MAX = 1000
LOOKED_AT_MAX = 10_000
"""Jobs that one listing looks at, to find those in a state."""
LEASE_WAIT_MS_MAX = WAIT_MS_MAX
DEAD_LETTERS_MAX = 100_000
"""Of a topic; the oldest goes when one more comes."""
KEPT_MS_MAX = 30 * DAY_MS
KEPT_MAX = 10_000_000
KEPT_BYTES_MAX = 1 << 40

RESULTS_SHARE = 8
"""Results are taken up to an eighth beyond the limit of memory, since jobs that go on make room; then only empty ones
are."""


class JobLimits(msgspec.Struct, frozen=True):
    running_max: int = 1_000_000
    bytes_max: int = 4 << 30
    """Of the inputs and results of all jobs under way, beyond which no job is accepted; they are held in memory."""


DEFAULT_JOB_LIMITS = JobLimits()
UNLIMITED_JOBS = JobLimits(1 << 62, 1 << 62)
"""For a replay: what was accepted once is not refused later."""

"""The protocol of a worker pool, a process that starts and supervises the workers of one topic.

    service ──WorkerPoolSettings, once; then the desired number of workers, one line each time──► worker pool
            ◄──WorkerPoolReport, one line for each change──

Each worker writes a heartbeat of one byte a second into a pipe. The pool kills a worker that is silent for too long; a
worker whose pipe has no reader any more knows that its pool is gone.
"""

from __future__ import annotations

import msgspec

HEARTBEAT_VARIABLE = "LAVANT_PULSE_FD"
"""Environment variable of a worker: the file descriptor of the pipe for heartbeats."""
BACKEND_VARIABLE = "LAVANT_BACKEND"
"""Environment variable of a worker: the queue backend, if it is not the server. It may hold a password."""
HEARTBEAT_S = 1.0
HEARTBEAT = b"."


class WorkerPoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    place: str
    """MODULE[:FUNCTION] or FILE.py[:FUNCTION]."""
    topic: str
    url: str
    ca_file: str = ""
    concurrency: int = 1
    lease_s: float = 30.0
    drain_s: float = 25.0
    silence_s: float = 30.0
    """A worker without a heartbeat for this long is killed."""


class WorkerPoolReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    running: int = 0
    """Workers that stay."""
    leaving: int = 0
    """Workers that finish their tasks and then exit."""
    died: int = 0
    """Workers that exited unasked since the pool started."""
    killed: int = 0
    """Workers killed for missing heartbeats since the pool started."""
    fault: str = ""
    """Why no worker can ever run."""

"""What a crew, a process that starts and watches workers of one topic, is told, and what it tells.

    service ──CrewSettings, once; then the number of workers wanted, a line each time──► crew
            ◄──CrewReport, a line for each change──

A worker gives the crew a sign of life: a byte a second into a pipe. Its reader takes one who is silent for dead; its
writer, when nobody reads any more, knows that it is alone.
"""

from __future__ import annotations

import msgspec

PULSE_VARIABLE = "LAVANT_PULSE_FD"
"""Of a worker's environment: the number of the pipe's end to write to."""
BACKEND_VARIABLE = "LAVANT_BACKEND"
"""Of a worker's environment: where tasks come from, if not from the server. It may hold a password."""
PULSE_S = 1.0
BEAT = b"."


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
    """A worker without a sign of life for so long is killed."""


class WorkerPoolReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    running: int = 0
    """Workers that are to stay."""
    leaving: int = 0
    """Workers that finish what they have begun."""
    died: int = 0
    """That were not told to, since the crew began."""
    killed: int = 0
    """For their silence, since the crew began."""
    fault: str = ""
    """Why there cannot be any, ever."""

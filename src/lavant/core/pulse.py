"""The sign of life of a process to the one that started it: a byte a second, into a pipe.

Its reader takes one who is silent for dead; its writer, when nobody reads any more, knows that it is alone.
"""

from __future__ import annotations

VARIABLE = "LAVANT_PULSE_FD"
"""Of the environment: the number of the pipe's end to write to."""
PULSE_S = 1.0
BEAT = b"."

"""Functions that tests have workers do."""

from __future__ import annotations

import time

import lavant


@lavant.task("quick")
def quick(task: lavant.Task) -> bytes:
    time.sleep(0.02)
    return task.input


@lavant.task("strange")
def strange(task: lavant.Task) -> str:
    """What the input says."""
    order = task.input.decode()
    if order == "raise":
        raise ValueError("it cannot be done")
    if order == "give up":
        raise lavant.PermanentFailure("it will never be done")
    if order == "hang" and task.attempt == 1:
        time.sleep(3600)
    return f"attempt {task.attempt}"

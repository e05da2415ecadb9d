"""The process from which Spark forks Python workers, with everything that they need already loaded.

A worker is forked in milliseconds with kernels, Arrow and matchers in memory. `gc.freeze` moves all of it out of the
garbage collector's sight: Spark collects garbage after every task, which otherwise costs more than a small batch.
"""

from __future__ import annotations

import gc
from typing import Any

from pyspark import daemon

_serve = daemon.worker


def worker(sock: Any, authenticated: bool) -> Any:
    """Spark's own, but for a query that is stopped in the middle of a task: no traceback, as nobody is left to read."""
    try:
        return _serve(sock, authenticated)
    except BrokenPipeError:
        return 1


def preload() -> None:
    """Import and run once what workers will run, so that compiled kernels are loaded before the fork."""
    import pyspark.worker  # noqa: F401, PLC0415

    from lavant.pipeline.stages import warm_up  # noqa: PLC0415

    warm_up()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    daemon.worker = worker
    daemon.manager()

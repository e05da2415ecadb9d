"""`lavant warm-up`: compile what a server and its workers need, ahead of their start."""

from __future__ import annotations

import time


def warm_up() -> None:
    """Compile all kernels and keep them, so that servers and Spark's workers of this user start at once.

    They are kept in the directory of LAVANT_CACHE_DIR, or else in lavant within that of XDG_CACHE_HOME, or in ~/.cache.
    A server does the same when it starts, and is ready when it is done.
    """
    from lavant.broker.warmup import BROKER_KERNELS  # noqa: PLC0415
    from lavant.cli.reports.kernels import shown_progress  # noqa: PLC0415
    from lavant.core.errors import InvalidValue  # noqa: PLC0415
    from lavant.core.kernels.cache import cache_state  # noqa: PLC0415
    from lavant.core.kernels.warmup import warm_up  # noqa: PLC0415
    from lavant.models.warmup import MODEL_KERNELS  # noqa: PLC0415
    from lavant.pipeline.warmup import PIPELINE_KERNELS  # noqa: PLC0415

    state = cache_state()
    started_s = time.monotonic()
    with shown_progress() as show:
        compiled = warm_up([BROKER_KERNELS, MODEL_KERNELS, PIPELINE_KERNELS], show)
    if compiled and state.problem is not None:
        raise InvalidValue(f"{compiled} kernels were compiled, and could not be kept: {state.problem}")
    if compiled:
        print(f"{compiled} kernels compiled in {time.monotonic() - started_s:.1f} s, kept in {state.directory}")
    else:
        print(f"all kernels are there, in {state.directory}")

"""`lavant warm-up`: compile kernels ahead of the first start."""

from __future__ import annotations

import time


def warm_up() -> None:
    """Compile all kernels and cache them, so that servers and Spark workers of this user start at once.

    The cache is in LAVANT_CACHE_DIR, or else in lavant below XDG_CACHE_HOME or ~/.cache.
    A server does the same when it starts, before it is ready.
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
        raise InvalidValue(f"{compiled} kernels were compiled but could not be cached: {state.problem}")
    if compiled:
        print(f"{compiled} kernels compiled in {time.monotonic() - started_s:.1f} s, cached in {state.directory}")
    else:
        print(f"all kernels are cached in {state.directory}")

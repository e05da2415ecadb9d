"""`lavant warm-up`: compile kernels ahead of the first start."""

from __future__ import annotations

import time

from lavant.cli.common import AsJson, report


def warm_up(as_json: AsJson = False) -> None:
    """Compile all kernels and cache them, so that servers and Spark workers of this user start at once.

    The cache is in LAVANT_CACHE_DIR, or else in lavant below XDG_CACHE_HOME or ~/.cache.
    A server does the same in the background when it starts.
    """
    import asyncio  # noqa: PLC0415
    from importlib.util import find_spec  # noqa: PLC0415

    from lavant.cli.reports.kernels import shown_progress  # noqa: PLC0415
    from lavant.core.errors import InvalidValue  # noqa: PLC0415
    from lavant.core.kernels.cache import cache_state  # noqa: PLC0415
    from lavant.core.kernels.warmup import WarmupProgress, warm_up  # noqa: PLC0415
    from lavant.service.runtime.kernels import ENCRYPTED, MODELS, PLAIN, prepare_kernels  # noqa: PLC0415

    state = cache_state()
    started_s = time.monotonic()
    compiled = 0
    with shown_progress() as show:

        def tell(progress: WarmupProgress) -> None:
            nonlocal compiled
            compiled = progress.compiled
            show(progress)

        asyncio.run(prepare_kernels([PLAIN, ENCRYPTED, MODELS], tell))
        if find_spec("pyspark") is not None:
            from lavant.pipeline.warmup import PIPELINE_KERNELS  # noqa: PLC0415

            compiled += warm_up([PIPELINE_KERNELS], show)
    if compiled and state.problem is not None:
        raise InvalidValue(f"{compiled} kernels were compiled but could not be cached: {state.problem}")
    seconds = time.monotonic() - started_s
    text = f"all kernels are cached in {state.directory}"
    if compiled:
        text = f"{compiled} kernels compiled in {seconds:.1f} s, cached in {state.directory}"
    report(text, as_json=as_json, compiled=compiled, seconds=round(seconds, 3), directory=str(state.directory))

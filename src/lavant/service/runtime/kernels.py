"""A server's kernels: loaded in a thread, after subprocesses have compiled those that are missing in the cache.

The compiler takes some 240 MB that a process does not give back, and blocks the event loop at times, so it runs in
processes of its own: one for each set of kernels, as many at once as there are cores. Without a cache for compiled
kernels, the server compiles them in the thread.

    python -m lavant.service.runtime.kernels plain    compiles a set; prints its progress: compiled, kinds, elsewhere
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence

from lavant.core.kernels.cache import cache_state
from lavant.core.kernels.warmup import KernelSet, WarmupProgress, warm_up

LOCK_TRIED_S = 0.1
"""Interval of the check whether another process has compiled the kernels."""
PLAIN, ENCRYPTED, MODELS = "plain", "encrypted", "models"
"""Sets of kernels: matching and routing; matching of encrypted publications; those of the resource manager."""

OnProgress = Callable[[WarmupProgress], None]


async def prepare_kernels(names: Sequence[str], on_progress: OnProgress) -> None:
    """Returns when all kernels of these sets are compiled and loaded. Can be cancelled."""
    if not await load_kernels(names):
        await compile_kernels(names, on_progress)


async def load_kernels(names: Sequence[str]) -> bool:
    """Loads the kernels of these sets, and returns whether all of them were in the cache."""
    if cache_state().problem is not None:
        return False
    try:
        await _warm_up_in_thread(names, lambda progress: None, may_compile=False)
    except _Missing:
        return False
    return True


async def compile_kernels(names: Sequence[str], on_progress: OnProgress) -> None:
    """Compiles what is missing, then loads all."""
    if cache_state().problem is None:
        await _compile_in_subprocesses(names, on_progress)
    await _warm_up_in_thread(names, on_progress, may_compile=True)


class _Missing(Exception):
    """A kernel is not compiled."""


class _Ended(Exception):
    """The warm-up was cancelled."""


async def _warm_up_in_thread(names: Sequence[str], on_progress: OnProgress, *, may_compile: bool) -> None:
    """Reports progress in the event loop. If this is cancelled, no further kernel is begun."""
    loop, ended = asyncio.get_running_loop(), threading.Event()

    def tell(progress: WarmupProgress) -> None:
        if ended.is_set():
            raise _Ended
        if not may_compile:
            raise _Missing
        loop.call_soon_threadsafe(on_progress, progress)

    def work() -> None:
        with contextlib.suppress(_Ended):
            sets = [_set_of(name) for name in names]
            warm_up(sets, tell, pause=lambda: time.sleep(LOCK_TRIED_S), is_locked=may_compile)

    try:
        await asyncio.shield(loop.run_in_executor(None, work))
    finally:
        ended.set()


async def _compile_in_subprocesses(names: Sequence[str], on_progress: OnProgress) -> None:
    """Compiles the sets side by side, and reports their common progress."""
    at = {name: WarmupProgress(0, _set_of(name).kinds) for name in names}
    free = asyncio.Semaphore(os.cpu_count() or 1)

    async def compile_set(name: str) -> None:
        def tell(progress: WarmupProgress) -> None:
            at[name] = progress
            is_elsewhere = all(each.is_elsewhere for each in at.values())
            compiled, kinds = sum(each.compiled for each in at.values()), sum(each.kinds for each in at.values())
            on_progress(WarmupProgress(compiled, kinds, is_elsewhere))

        async with free:
            await _compile_in_subprocess(name, tell)

    async with asyncio.TaskGroup() as compiling:
        for name in names:
            compiling.create_task(compile_set(name))


async def _compile_in_subprocess(name: str, on_progress: OnProgress) -> None:
    """If the process fails, the server compiles the rest itself."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, name, stdout=PIPE)
    try:
        await _follow(process, on_progress)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _follow(process: Process, on_progress: OnProgress) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        compiled, kinds, is_elsewhere = map(int, line.split())
        on_progress(WarmupProgress(compiled, kinds, bool(is_elsewhere)))
    await process.wait()


def _set_of(name: str) -> KernelSet:
    if name == MODELS:
        from lavant.models.warmup import MODEL_KERNELS  # noqa: PLC0415  only the resource manager needs the models

        return MODEL_KERNELS
    from lavant.broker.warmup import ENCRYPTED_KERNELS, PLAIN_KERNELS  # noqa: PLC0415

    return ENCRYPTED_KERNELS if name == ENCRYPTED else PLAIN_KERNELS


def _main(names: Sequence[str]) -> None:
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):  # the server is gone or stopping
        warm_up(
            [_set_of(name) for name in names],
            lambda at: print(at.compiled, at.kinds, int(at.is_elsewhere), flush=True),
            pause=lambda: time.sleep(LOCK_TRIED_S),
        )


if __name__ == "__main__":
    _main(sys.argv[1:])

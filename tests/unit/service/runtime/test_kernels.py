"""Kernels of a server: loaded if they are there, compiled by another process or by this one if they are not."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.wiring import until

from lavant.core.kernels.cache import VARIABLE, locked
from lavant.core.kernels.kernels import KERNELS, kernel
from lavant.core.kernels.warmup import KernelSet, WarmupProgress, warm_up
from lavant.service.runtime import kernels


def double(x: int) -> int:
    return 2 * x


def small_set() -> KernelSet:
    """One kernel, as a new process would have it."""
    made: Any = kernel(double)
    return KernelSet("test", lambda: made(3), kinds=1)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    there = len(KERNELS)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(kernels, "_set_of", lambda name: small_set())
    yield tmp_path / "kernels"
    del KERNELS[there:]


def program(directory: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """In place of the process that compiles."""
    path = directory / "program"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(path))


def prepared() -> list[WarmupProgress]:
    heard: list[WarmupProgress] = []
    asyncio.run(kernels.prepare_kernels([kernels.PLAIN], heard.append))
    return heard


def test_kernels_that_are_there_are_loaded_and_no_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up([small_set()])
    program(tmp_path, monkeypatch, f"touch {tmp_path}/started")
    assert prepared() == []
    assert not (tmp_path / "started").exists()


def test_whoever_only_loads_waits_for_nobody(cache: Path) -> None:
    warm_up([small_set()])
    with locked(cache):
        assert prepared() == []


def test_the_progress_of_the_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "echo 0 9 1", "echo 5 9 0")
    assert prepared()[:2] == [WarmupProgress(0, 9, is_elsewhere=True), WarmupProgress(5, 9)]


@pytest.mark.parametrize("end", ["exit 1", "kill -9 $$"])
def test_what_a_process_that_fails_leaves_undone_is_done_here(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    program(tmp_path, monkeypatch, end)
    assert prepared() == [WarmupProgress(1, 1)]
    assert [path.suffix for path in cache.iterdir() if path.suffix != ".lock"] == [".kernel"]
    assert prepared() == []


def test_where_nothing_can_be_kept_no_process_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, f"touch {tmp_path}/started")
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    assert prepared() == [WarmupProgress(1, 1)]
    assert not (tmp_path / "started").exists()


def test_a_server_that_stops_meanwhile_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "echo $$ 9 0", "exec sleep 1000")

    async def run() -> None:
        heard: list[WarmupProgress] = []
        task = asyncio.ensure_future(kernels.prepare_kernels([kernels.PLAIN], heard.append))
        await until(lambda: bool(heard))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ProcessLookupError):
            os.kill(heard[0].compiled, 0)

    asyncio.run(run())

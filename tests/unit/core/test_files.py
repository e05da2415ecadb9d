"""Paths that users give: those of this machine, and no URIs of storage elsewhere. Files that are written whole."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.core.errors import InvalidValue
from lavant.core.files import DIRECT_BYTES, local_path, replace_file
from lavant.pipeline.cluster.coordination import FileCoordination
from lavant.pipeline.stream.inputs import load_publications, load_subscriptions
from lavant.pipeline.stream.sinks import Notifications, read_notifications

URIS = [
    "hdfs://namenode:8020/x",
    "s3://bucket/key",
    "s3a://bucket",
    "HTTP://h/x",
    "abfss://c@a.dfs/x",
    "gs:/b",
    "dbfs:/x",
]


def load_into_log(path: Path) -> None:
    with LogWriter(Path("log")) as log:
        load_publications(path, log, scheme="plain")


TAKERS: list[Callable[[Path], Any]] = [
    LogWriter,
    LogReader,
    SliceStore.create,
    SliceStore.open,
    SliceReader,
    FileCoordination,
    Notifications,
    read_notifications,
    lambda path: load_subscriptions(path, Path("store"), scheme="plain", slices=1),
    load_into_log,
]


@pytest.mark.parametrize("uri", [*URIS, "file://host/x", "file:///a%20b"])
def test_a_uri_is_refused_also_once_it_is_a_path(uri: str) -> None:
    with pytest.raises(InvalidValue, match=r"is a URI .*only paths of this machine's file system are supported"):
        local_path(uri)


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("uri", URIS[:2])
def test_whoever_takes_a_path_takes_no_uri_and_makes_nothing(
    taker: Callable[[Path], Any], uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match="is a URI"):
        taker(Path(uri))
    assert not [path for path in tmp_path.iterdir() if ":" in path.name]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("file:///x/y", "/x/y"),
        ("file:/x", "/x"),
        ("file://localhost/x", "/x"),
        (Path("file:///x/y"), "/x/y"),
        ("x/y", "x/y"),
        ("/x:/y", "/x:/y"),
        ("a b:c", "a b:c"),
        ("c:/x", "c:/x"),
    ],
)
def test_a_path_is_taken_as_it_is_and_a_file_s_uri_as_its_path(given: str | Path, path: str) -> None:
    assert local_path(given) == Path(path)


SIZES = st.sampled_from([0, 1, 4095, 4096, 4097, DIRECT_BYTES - 1, DIRECT_BYTES, DIRECT_BYTES + 1]) | st.integers(
    0, 3 * DIRECT_BYTES
)


@given(st.lists(SIZES, max_size=4))
def test_a_file_holds_its_parts_in_order_whatever_their_sizes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "whole"
    parts: list[bytes | memoryview] = [random.Random(number).randbytes(size) for number, size in enumerate(sizes)]
    replace_file(path, parts)
    assert path.read_bytes() == b"".join(parts)


@pytest.mark.parametrize("step", [DIRECT_BYTES // 2, 4096 * 3, 4096 * 3 + 512])
def test_a_write_that_stops_short_is_gone_on_with(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:step]))
    content = random.Random(step).randbytes(2 * DIRECT_BYTES + 12_345)
    replace_file(tmp_path / "whole", [content])
    assert (tmp_path / "whole").read_bytes() == content


def test_a_file_system_without_direct_writes_takes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_DIRECT", raising=False)
    content = random.Random(0).randbytes(2 * DIRECT_BYTES + 12_345)
    replace_file(tmp_path / "whole", [content[:7], content[7:]])
    assert (tmp_path / "whole").read_bytes() == content


def test_a_large_file_leaves_nothing_behind_where_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "whole", [bytes(DIRECT_BYTES)])
    assert list(tmp_path.iterdir()) == []

"""Paths that users give: those of this machine, and no URIs of storage elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.core.errors import InvalidValue
from lavant.core.files import local_path
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

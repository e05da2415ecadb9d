"""Archives for executors: what is refused. That they work is tested on a cluster (`test_spark_clusters`)."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from pathlib import Path

import msgspec
import pytest

from lavant.core.errors import InvalidValue, StorageFailed
from lavant.pipeline.packing import MANIFEST, pack, read_manifest, shipped, this_installation


def archive(path: Path, content: bytes, name: str = MANIFEST) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return path


def test_an_archive_of_another_version_is_refused(tmp_path: Path) -> None:
    other = msgspec.structs.replace(this_installation(), lavant="0.0.1")
    path = archive(tmp_path / "a.tar.gz", msgspec.json.encode(other))
    assert read_manifest(path) == other
    with pytest.raises(InvalidValue, match=r"holds Lavant 0\.0\.1 .* make a new one with `lavant spark pack`"):
        shipped(path, "spark://host:7077")


def test_an_archive_is_shipped_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    path = archive(tmp_path / "a.tar.gz", msgspec.json.encode(this_installation()))
    settings = shipped(path, "yarn", "hdfs:///more.zip#more")
    assert settings["spark.archives"] == f"hdfs:///more.zip#more,file://{path}#lavant"


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.tar.gz"
    text.write_text("text")
    for path in (
        tmp_path / "absent.tar.gz",
        text,
        archive(tmp_path / "b.tar.gz", b"", "other"),
        archive(tmp_path / "c.tar.gz", b"{"),
    ):
        with pytest.raises(InvalidValue, match=r"is no archive of `lavant spark pack`"):
            read_manifest(path)


def test_local_masters_take_no_archive(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="an archive is for clusters"):
        shipped(tmp_path / "a.tar.gz", "local[2]")


def test_an_archive_has_the_name_that_spark_recognises(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"'lavant\.zip' must end in \.tar\.gz"):
        pack(tmp_path / "lavant.zip")
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_cannot_be_written_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tarfile.TarFile, "add", full)
    (tmp_path / "lavant.tar.gz").write_text("the one before")
    with pytest.raises(
        StorageFailed, match=r"^cannot write .*lavant\.tar\.gz: No space left on device; choose another"
    ):
        pack(tmp_path / "lavant.tar.gz")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("lavant.tar.gz", "the one before")]

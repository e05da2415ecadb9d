"""What every object storage promises: local directories, file systems of pyarrow, S3 and HDFS."""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs
from tests.integration.hadoop import Hadoop, hadoop_cluster
from tests.integration.object_store import ObjectStore, object_store
from tests.integration.server_processes import free_port
from tests.property.object_stores import ACCESS_KEY, SECRET_KEY, s3_uri

from lavant.broker.storage.objects import LocalStorage, ObjectStorage, arrow, hdfs, open_storage
from lavant.broker.storage.objects.arrow import ArrowStorage
from lavant.broker.storage.objects.uris import parse_uri
from lavant.core.errors import InvalidValue, MissingComponent, StorageFailed
from lavant.core.files import replace_file

ODD_NAMES = ["a%25b", "with space", "ünïcode/日本", "plus+and&amp=;", "quo'te\"", "hash#mark", "q?uery", "%", "a/%2F/b"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    with hadoop_cluster(tmp_path_factory.mktemp("hadoop")) as running:
        yield running


S3 = pytest.param("s3", marks=pytest.mark.external)
HDFS = pytest.param("hdfs", marks=[pytest.mark.external, pytest.mark.soak])


@pytest.fixture(params=["local", "arrow-files", "arrow-memory", S3, HDFS])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


WITH_CONDITIONAL_PUT = pytest.mark.parametrize("kind", ["local", S3, HDFS])
"""The other file systems live in their test only, and `create` looks first there."""


@pytest.fixture
def storage(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> ObjectStorage:
    if kind == "local":
        return open_storage(tmp_path / "not yet" / "there")
    if kind == "arrow-files":
        return ArrowStorage(fs.LocalFileSystem(), str(tmp_path / "root"), parse_uri("other://host/root"))
    if kind == "arrow-memory":
        return ArrowStorage(fs._MockFileSystem(), "some/folder", parse_uri("mock://some/folder"))
    if kind == "hdfs":
        hadoop: Hadoop = request.getfixturevalue("hadoop")
        return open_storage(hadoop.uri(f"some/folder/{tmp_path.name}"))
    server: ObjectStore = request.getfixturevalue("server")
    return open_storage(s3_uri(server, f"some/prefix/{tmp_path.name}"))


def test_an_object_is_read_as_it_was_written_whole_or_in_part(storage: ObjectStorage) -> None:
    content = bytes(range(256)) * 40
    storage.write("a/b", [content[:100], memoryview(content)[100:]])
    assert storage.read("a/b") == content
    assert storage.read("a/b", 300, 20) == content[300:320]
    assert storage.read("a/b", len(content) - 5, 100) == content[-5:]
    assert storage.read("a/b", len(content) + 5, 100) == b""
    assert storage.read("a/b", 7) == content[7:]
    assert storage.read("a/b", 7, 0) == b""
    assert storage.size("a/b") == len(content)


def test_buffers_of_arrow_are_parts(storage: ObjectStorage) -> None:
    storage.write("a", [memoryview(pa.py_buffer(bytes(range(256)))), memoryview(pa.py_buffer(b""))])
    assert storage.read("a") == bytes(range(256))


def test_an_empty_object_is_one(storage: ObjectStorage) -> None:
    storage.write("empty", [])
    assert storage.read("empty") == b""
    assert storage.size("empty") == 0
    assert not storage.create("empty", [b"x"])


def test_a_missing_object_has_no_size_and_cannot_be_read(storage: ObjectStorage) -> None:
    for name in ("x", "x/y"):
        assert storage.size(name) is None
        with pytest.raises(FileNotFoundError):
            storage.read(name)
        storage.remove(name)
    assert storage.names() == []
    assert storage.names("x/") == []
    storage.write("x", [b"1"])
    assert storage.size("x/y") is None
    with pytest.raises(FileNotFoundError):
        storage.read("x/y")


def test_a_folder_is_no_object(storage: ObjectStorage) -> None:
    storage.write("folder/inside", [b"1"])
    assert storage.size("folder") is None
    with pytest.raises(FileNotFoundError):
        storage.read("folder")
    storage.remove("folder")
    assert storage.names() == ["folder/inside"]


def test_writing_replaces_and_creating_does_not(storage: ObjectStorage) -> None:
    storage.write("a", [b"first"])
    storage.write("a", [b"second, and longer"])
    assert storage.read("a") == b"second, and longer"
    assert storage.create("a", [b"third"]) is False
    assert storage.read("a") == b"second, and longer"
    assert storage.create("b/c", [b"of ", b"parts"]) is True
    assert storage.read("b/c") == b"of parts"
    storage.remove("b/c")
    assert storage.create("b/c", [b"again"]) is True


def test_names_are_sorted_and_chosen_by_the_start_of_their_text(storage: ObjectStorage) -> None:
    names = ["b", "a/2", "a/10", "ab/x", "a-", "a/deep/er/1", "a/deep/er/2"]
    for name in names:
        storage.write(name, [b"1"])
    for prefix in ("", "a", "a/", "a/1", "a/deep/", "a/deep/er", "ab/x", "ab/xy", "c", "b", "b/"):
        expected = sorted(name for name in names if name.startswith(prefix))
        assert storage.names(prefix) == expected, prefix
        for after in ("a/", "a/10", "a/2", "z"):
            assert storage.names(prefix, after) == [name for name in expected if name > after]


def test_what_is_removed_is_gone_and_the_rest_stays(storage: ObjectStorage) -> None:
    for name in ("a/1", "a/2", "b"):
        storage.write(name, [b"1"])
    storage.remove("a/1")
    storage.remove("a/1")
    assert storage.names() == ["a/2", "b"]
    storage.remove("a/2")
    storage.remove("b")
    assert storage.names() == []
    storage.write("a/1", [b"again"])
    assert storage.read("a/1") == b"again"


@pytest.mark.external
def test_nothing_marks_folders_on_s3_and_markers_of_others_are_no_objects(server: ObjectStore) -> None:
    storage = open_storage(s3_uri(server, "markers"))
    for name in ("a/b/c", "a/d"):
        storage.write(name, [b"1"])
        storage.remove(name)
    assert server.names("markers") == []
    server.client().put_object(Bucket="lavant", Key="markers/x/", Body=b"")
    for listed in (storage.names(), storage.names("x"), storage.names("x/"), storage.names(after="a")):
        assert listed == []


@pytest.mark.external
def test_without_boto3_s3_can_be_read_and_creating_names_the_extra(
    server: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow._s3_requests.cache_clear()
    monkeypatch.setitem(sys.modules, "boto3", None)
    storage = open_storage(s3_uri(server, "without"))
    for name in ("a/1", "a/2", "b"):
        storage.write(name, [name.encode()])
    assert storage.names("a/", "a/1") == ["a/2"]
    assert storage.names("a") == ["a/1", "a/2"]
    assert storage.read("a/2") == b"a/2"
    storage.remove("a/1")
    storage.remove("a/1")
    assert storage.names() == ["a/2", "b"]
    with pytest.raises(MissingComponent, match=r"boto3 is not installed; .*install 'lavant\[s3\]'$"):
        storage.create("c", [b"1"])


def test_a_storage_below_another_holds_the_names_of_its_folder(storage: ObjectStorage) -> None:
    below = storage.below("x/y z%")
    below.write("a/b", [b"1"])
    assert storage.names() == ["x/y z%/a/b"]
    assert below.names() == ["a/b"]
    assert storage.below("x").names() == ["y z%/a/b"]
    assert below.uri.startswith(storage.uri.partition("?")[0])


def test_names_are_exact(storage: ObjectStorage) -> None:
    for number, name in enumerate(ODD_NAMES):
        assert storage.create(name, [str(number).encode()]), name
    assert storage.names() == sorted(ODD_NAMES)
    for number, name in enumerate(ODD_NAMES):
        assert storage.read(name) == str(number).encode()
        assert storage.size(name) == len(str(number))
        storage.remove(name)
    assert storage.names() == []


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/./b", "a/..", "a\0b"])
def test_other_texts_are_no_names(storage: ObjectStorage, name: str) -> None:
    for use in (storage.read, storage.size, storage.remove, storage.path, storage.below):
        with pytest.raises(InvalidValue, match="is no name of an object"):
            use(name)
    for store in (storage.write, storage.create):
        with pytest.raises(InvalidValue, match="is no name of an object"):
            store(name, [b"1"])


def test_parts_that_fail_leave_what_was_there(storage: ObjectStorage) -> None:
    def parts() -> Iterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    storage.write("kept", [b"whole"])
    for store, name in ((storage.write, "kept"), (storage.write, "new"), (storage.create, "new")):
        with pytest.raises(ZeroDivisionError):
            store(name, parts())
    assert storage.names() == ["kept"]
    assert storage.read("kept") == b"whole"


@WITH_CONDITIONAL_PUT
def test_the_same_storage_opens_elsewhere_by_its_address_and_as_a_pickle(storage: ObjectStorage) -> None:
    storage.write("a", [b"1"])
    below = storage.below("b %c")
    below.write("d", [b"2"])
    for again in (open_storage(storage.address), pickle.loads(pickle.dumps(storage)), open_storage(storage)):
        assert again.read("a") == b"1"
    for again in (open_storage(below.address), pickle.loads(pickle.dumps(below))):
        assert again.read("d") == b"2"


@WITH_CONDITIONAL_PUT
def test_of_many_that_create_one_object_at_once_one_succeeds(storage: ObjectStorage) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(10):
            contents = [f"{number} {writer} ".encode() * 1000 for writer in range(8)]
            won = list(pool.map(lambda content, name=f"head-{number}": storage.create(name, [content]), contents))
            assert won.count(True) == 1
            assert storage.read(f"head-{number}") == contents[won.index(True)]
    assert storage.names() == [f"head-{number}" for number in range(10)]


def test_many_that_write_one_object_at_once_leave_one_of_theirs(storage: ObjectStorage) -> None:
    contents = [f"{writer} ".encode() * 10_000 for writer in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: storage.write("a", [content]), contents))
    assert storage.read("a") in contents
    assert storage.names() == ["a"]


def test_a_local_object_has_a_file_and_another_has_none(storage: ObjectStorage) -> None:
    storage.write("a/b", [b"1"])
    path = storage.path("a/b")
    assert (path is not None) == isinstance(storage, LocalStorage)
    assert path is None or path.read_bytes() == b"1"


@pytest.mark.external
def test_secrets_of_a_uri_are_never_shown(server: ObjectStore) -> None:
    storage = open_storage(s3_uri(server, "x"))
    shown = [storage.uri, repr(storage), str(storage), storage.below("y").uri]
    for uri in (
        s3_uri(server, "x", "no-such-bucket"),
        s3_uri(server, "x").replace(f":{server.port}", ":9"),
        s3_uri(server, "x") + "&session=HIDDEN-TOKEN",
        s3_uri(server, "x").replace("s3://", "s4://"),
        s3_uri(server, "%zz"),
    ):
        with pytest.raises((MissingComponent, InvalidValue)) as failure:
            open_storage(uri).create("a", [b"1"])
        shown.append(str(failure.value))
    for text in shown:
        assert "\n" not in text
        assert not re.search(f"{ACCESS_KEY}|{re.escape(SECRET_KEY)}|HIDDEN-TOKEN|cret", text), text
    assert "***@lavant/x" in shown[0]


@pytest.mark.external
@pytest.mark.parametrize("use", ["read", "size", "names", "write", "create", "remove"])
def test_a_missing_bucket_is_one_line_that_says_so(server: ObjectStore, use: str) -> None:
    storage = open_storage(s3_uri(server, "x", "not-made"))
    given: dict[str, Any] = {"names": (), "write": ("a", [b"1"]), "create": ("a", [b"1"])}
    with pytest.raises(MissingComponent, match=r"^s3://\*\*\*@not-made/x.*bucket.* does not exist; create it"):
        getattr(storage, use)(*given.get(use, ("a",)))


@pytest.mark.external
def test_no_server_is_one_line_that_names_the_endpoint(server: ObjectStore) -> None:
    storage = open_storage(s3_uri(server, "x").replace(f":{server.port}", ":9"))
    for use in (lambda: storage.read("a"), storage.names, lambda: storage.create("a", [b"1"])):
        with pytest.raises(MissingComponent, match=r"127\.0\.0\.1:9.*(no connection|connect)"):
            use()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("foo://host/x", r"foo://host/x: there is no storage foo://; give a local path or a URI such as s3://"),
        ("sparkk://host:7077", "there is no storage sparkk://"),
        ("s3a://bucket/x", "there is no storage s3a://.*here Spark's s3a:// is s3://"),
        ("gs:/bucket", "write it as gs://HOST-OR-BUCKET/PATH"),
        ("s3:///x", "names no bucket; write it as s3://BUCKET/PATH"),
        ("s3://bucket/50%", r"a % in the path of a URI is written %25"),
        ("s3://bucket/x?colour=red", r"Unexpected query parameter in S3 URI: 'colour'"),
        ("hdfs://user@host:8020/x", "name the user in HADOOP_USER_NAME, not in the URI"),
        ("hdfs://host:8020/x?replication=2", "hdfs:// takes no parameters; set them in hdfs-site.xml"),
        (Path("s3://bucket/x"), "is a URI"),
        ("file://host/x", "is a URI"),
    ],
)
def test_what_is_no_storage_is_refused_in_one_line(place: str | Path, message: str) -> None:
    with pytest.raises(InvalidValue, match=message) as failure:
        open_storage(place)
    assert "\n" not in str(failure.value)


def test_googles_storage_that_does_not_answer_is_one_line_in_seconds() -> None:
    nobody = "gs://anonymous@bucket/x?endpoint_override=127.0.0.1:9&scheme=http"
    [options] = arrow.open_arrow_storage(nobody)._fs.__reduce__()[1]
    assert options["retry_time_limit"].total_seconds() == arrow.GOOGLE_RETRY_S
    with pytest.raises(MissingComponent, match=r"no connection; check the endpoint and the network$"):
        open_storage(f"{nobody}&retry_limit_seconds=1").names()
    refused = OSError("UNAVAILABLE: Could not create a OAuth2 access token: PerformWork() - CURL error [6]")
    assert str(arrow.explained(parse_uri("gs://bucket/x"), refused)).endswith("set GOOGLE_APPLICATION_CREDENTIALS")


def test_hdfs_without_its_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(MissingComponent, match=r"hdfs_native is not installed; .*install 'lavant\[hdfs\]'$"):
        open_storage("hdfs://namenode:8020/x")


@pytest.mark.external
@pytest.mark.soak
def test_what_hdfs_refuses_is_one_line(hadoop: Hadoop, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"hdfs://127.0.0.1:{free_port()}/x"
    with pytest.raises(MissingComponent, match=rf"^{nobody}: no connection; check the address and whether"):
        open_storage(nobody).create("a", [b"1"])
    with pytest.raises(MissingComponent, match="names must not contain ':'"):
        open_storage(hadoop.uri("x")).write("a:b", [b"1"])
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    monkeypatch.setattr(hdfs, "_clients", {})
    storage = open_storage(hadoop.uri("x"))
    with pytest.raises(
        MissingComponent, match=r"^hdfs://.*/x: Permission denied: user=somebody, .*; check HADOOP"
    ) as no:
        storage.create("a", [b"1"])
    assert "\n" not in str(no.value)


def test_a_fork_of_a_process_that_uses_hdfs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "_clients", {(os.getpid() + 1, "hdfs://other:8020"): None})
    with pytest.raises(MissingComponent, match="forked from one that uses HDFS cannot use it"):
        open_storage("hdfs://namenode:8020/x")


def test_a_file_uri_is_a_local_path(tmp_path: Path) -> None:
    open_storage(f"file://{tmp_path}/a").write("b", [b"1"])
    assert (tmp_path / "a" / "b").read_bytes() == b"1"
    assert open_storage(str(tmp_path / "a")).names() == ["b"]


def test_a_file_that_is_not_complete_is_hidden_from_whoever_reads_the_folder(tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"half"
        (partial,) = tmp_path.iterdir()
        assert partial.name.startswith(".")
        assert partial.name.endswith(".partial")

    replace_file(tmp_path / "part-1.parquet", parts())
    assert [path.name for path in tmp_path.iterdir()] == ["part-1.parquet"]


def test_a_file_that_is_not_complete_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "a.1234.partial").write_bytes(b"half")
    assert LocalStorage(tmp_path).names() == []


def test_a_folder_that_becomes_empty_while_another_writes_to_it_is_there_again(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)

    def turns(writer: int) -> None:
        for turn in range(200):
            storage.write(f"deep/folder/{writer}-{turn}", [b"1"])
            storage.remove(f"deep/folder/{writer}-{turn}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(turns, range(4)))
    assert storage.names() == []


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for store in (open_storage(tmp_path / "file").write, open_storage(tmp_path / "file").create):
        with pytest.raises(StorageFailed, match=r"cannot write .*file/a: .*; choose another place"):
            store("a", [b"1"])


def test_a_relative_directory_is_the_same_one_for_a_process_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = open_storage("here")
    storage.write("a", [b"1"])
    travelling = pickle.dumps(storage)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(travelling).read("a") == b"1"

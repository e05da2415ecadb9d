"""Backups: of a server under load, of a stopped directory, and what restoring refuses."""

from __future__ import annotations

import io
import json
import random
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration import data_directories
from tests.integration.data_directories import Writer, opened, state_of
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served

from lavant import connect
from lavant.core.errors import CorruptSnapshot, InvalidValue, LavantError, StorageFailed, StorageLocked
from lavant.service.auth.keys import KeyEntry, entry_text, sha256_of
from lavant.service.storage.backups.archive import DESCRIPTION, verify
from lavant.service.storage.backups.restore import restore
from lavant.service.storage.backups.source import open_backup, stopped_backup

LOG = "spark/default/log/00000000000000000000.log"


def lavant(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(LAVANT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S_MAX, check=False)


# ── a running server ──────────────────────────────────────────────────────────────────────────────────────────────────


class Load:
    """Sends and publishes numbers, and notes which are confirmed."""

    def __init__(self, url: str) -> None:
        self.confirmed: dict[str, int] = {"sent": 0, "published": 0}
        self._over = Event()
        self._threads = [Thread(target=self._run, args=(url, name)) for name in self.confirmed]
        for thread in self._threads:
            thread.start()

    def _run(self, url: str, name: str) -> None:
        with connect(url) as client:
            number = 0
            while not self._over.is_set():
                try:
                    if name == "sent":
                        client.queue("sent").send_many([str(number + each).encode() for each in range(1, 11)])
                    else:
                        client.publish_many([{"n": number + each} for each in range(1, 11)])
                except LavantError:
                    return  # the server was killed
                number += 10
                self.confirmed[name] = number

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def received(url: str, queue: str, value_of: Callable[[bytes], int]) -> set[int]:
    found: set[int] = set()
    with connect(url) as client:
        while messages := client.queue(queue).receive(100):
            found.update(value_of(message.body) for message in messages)
            client.queue(queue).acknowledge(*messages)
    return found


def test_everything_that_was_confirmed_before_a_backup_is_in_it(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as server:
        with connect(server.url) as client:
            client.create_queue("sent")
            client.create_queue("published")
            client.subscribe("n > 0", name="all", queue="published").close()
        load = Load(server.url)
        try:
            while min(load.confirmed.values()) < 200:
                time.sleep(0.01)
            before = dict(load.confirmed)
            done = lavant("backup", tmp_path / "b.tar", "--url", server.url, "--json")
            assert done.returncode == 0, done.stderr
            assert all(load.confirmed[name] > before[name] for name in before)  # the server went on
        finally:
            server.kill()
            load.end()
    shutil.rmtree(tmp_path / "data")
    restored = lavant("restore", tmp_path / "b.tar", tmp_path / "new", "--json")
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["position"] == json.loads(done.stdout)["position"]
    with Served(tmp_path / "new") as server:
        assert received(server.url, "sent", int) >= set(range(1, before["sent"] + 1))
        numbers = received(server.url, "published", lambda body: int(json.loads(body)["n"]))
        assert numbers >= set(range(1, before["published"] + 1))
        with connect(server.url) as client:
            client.queue("sent").send(b"1")  # the journal goes on
        assert server.stop() == 0
        assert server.complaints == ""


def test_a_backup_is_for_operators_and_audited(tmp_path: Path) -> None:
    entries = [
        KeyEntry(name="operator", sha256=sha256_of("operator"), scopes=["admin"]),
        KeyEntry(name="acme", sha256=sha256_of("acme"), scopes=["admin"], namespace="acme"),
        KeyEntry(name="writer", sha256=sha256_of("writer"), scopes=["publish", "subscribe"]),
    ]
    keys, audit = tmp_path / "keys.toml", tmp_path / "audit.log"
    keys.write_text("\n".join(map(entry_text, entries)))
    keys.chmod(0o600)
    with Served(tmp_path / "data", "--keys-file", str(keys), "--audit-log", str(audit)) as server:
        for key in ("acme", "writer", "unknown"):
            refused = lavant("backup", tmp_path / "b.tar", "--url", server.url, "--key", key)
            assert refused.returncode != 0
            assert len(refused.stderr.splitlines()) == 1, refused.stderr
            assert "key" in refused.stderr
        assert lavant("backup", tmp_path / "b.tar", "--url", server.url, "--key", "operator").returncode == 0
        again = lavant("backup", tmp_path / "b.tar", "--url", server.url, "--key", "operator")
        assert "exists already" in again.stderr
        assert server.stop() == 0
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    outcomes = [(line.get("key"), line["outcome"]) for line in lines if line["action"] == "TakeBackup"]
    assert outcomes == [("acme", "denied"), ("writer", "denied"), ("operator", "ok")]
    assert sorted(path.name for path in tmp_path.glob("*b.tar*")) == ["b.tar"]
    assert (tmp_path / "b.tar").stat().st_mode & 0o077 == 0


def test_a_server_in_memory_has_nothing_to_back_up(tmp_path: Path) -> None:
    with Served(None) as server:
        refused = lavant("backup", tmp_path / "b.tar", "--url", server.url)
    assert refused.returncode != 0
    assert "in memory only" in refused.stderr
    assert list(tmp_path.iterdir()) == []


# ── a directory ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a bit of everything: snapshot, segments, and a publication log."""
    directory = tmp_path_factory.mktemp("made") / "data"
    writer = Writer(directory)
    data_directories._set_up(writer)
    chance = random.Random(3)
    for step in range(100):
        if step == 50:
            writer.compact()
        data_directories._step(writer, chance)
    writer.close()
    (directory / LOG).parent.mkdir(parents=True)
    (directory / LOG).write_bytes(b"a block")
    return directory


@pytest.fixture(scope="module")
def archive(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "b.tar"
    with stopped_backup(made) as backup:
        path.write_bytes(b"".join(backup.parts()))
        assert path.stat().st_size == backup.size_bytes
    return path


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_a_restored_directory_has_the_same_state(made: Path, archive: Path, tmp_path: Path) -> None:
    before = contents(made)
    restore(archive, tmp_path / "new")
    assert contents(made) == before
    assert (tmp_path / "new" / LOG).read_bytes() == b"a block"
    assert state_of(opened(tmp_path / "new")) == state_of(opened(made))


def test_compaction_does_not_take_files_from_a_backup(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    data_directories._set_up(writer)
    writer.compact()
    with open_backup(writer.journal, tmp_path / "data") as backup:
        before = {entry.name for entry in backup.description.files}
        chance = random.Random(1)
        for _ in range(20):
            data_directories._step(writer, chance)
        writer.compact()
        assert any(not (tmp_path / "data" / name).exists() for name in before)
        (tmp_path / "b.tar").write_bytes(b"".join(backup.parts()))
    restore(tmp_path / "b.tar", tmp_path / "new")
    writer.close()
    opened(tmp_path / "new")


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_damaged_backup_leaves_nothing(
    archive: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(archive.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[place:]
    else:
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    directory = tmp_path_factory.mktemp("damaged")
    (directory / "b.tar").write_bytes(content)
    problem = ""
    try:
        restore(directory / "b.tar", directory / "new")
    except (CorruptSnapshot, InvalidValue) as error:
        problem = str(error)
        assert not (directory / "new").exists()
    else:  # only fillers of the archive differ
        restore(archive, directory / "right")
        assert contents(directory / "new") == contents(directory / "right")
    assert "lavant check" not in problem, "there is nothing to check"
    shutil.rmtree(directory)


def changed(archive: Path, target: Path, change: Callable[[dict[str, object]], None]) -> Path:
    """A copy of an archive with another description."""
    with tarfile.open(archive) as old, tarfile.open(target, "w") as new:
        for member in old:
            content = old.extractfile(member)
            assert content is not None
            data = content.read()
            if member.name == DESCRIPTION:
                described = json.loads(data)
                change(described)
                data = json.dumps(described).encode()
                member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    return target


def test_a_backup_of_a_newer_format_is_refused(archive: Path, tmp_path: Path) -> None:
    newer = changed(archive, tmp_path / "b.tar", lambda described: described.update(format=2))
    with pytest.raises(InvalidValue, match=r"has format 2, .* reads up to format 1; use the version that wrote it"):
        restore(newer, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "spark/../log/log.json", "spark/a/log/x", "lock", "keys.toml"])
def test_a_backup_writes_only_files_of_a_data_directory(archive: Path, tmp_path: Path, name: str) -> None:
    def rename(described: dict[str, object]) -> None:
        assert isinstance(described["files"], list)
        described["files"][-1]["name"] = name

    with pytest.raises(CorruptSnapshot, match="no file of a data directory"):
        restore(changed(archive, tmp_path / "b.tar", rename), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_restoring_overwrites_nothing(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("x")
    with pytest.raises(InvalidValue, match="is not empty"):
        restore(archive, tmp_path / "new")
    assert contents(tmp_path / "new") == {"mine": b"x"}
    with pytest.raises(InvalidValue, match="is not a backup"):
        restore(tmp_path / "new" / "mine", tmp_path / "other")


def test_a_directory_in_use_is_not_copied_from_outside(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "data")
    writer = Writer(tmp_path / "data")
    with pytest.raises(StorageLocked, match="in use"), stopped_backup(tmp_path / "data"):
        pass
    writer.close()


def test_the_command_backs_up_a_stopped_directory(made: Path, tmp_path: Path) -> None:
    done = lavant("backup", tmp_path / "b.tar", "--data", made)
    assert done.returncode == 0, done.stderr
    assert f"{verify(tmp_path / 'b.tar').position:,} records up to" in done.stdout
    missing = lavant("backup", tmp_path / "c.tar", "--data", tmp_path)
    assert "is not a data directory" in missing.stderr


def test_a_backup_that_does_not_fit_on_its_disk_says_so_and_leaves_nothing(made: Path, tmp_path: Path) -> None:
    with Served(tmp_path / "data") as server:
        with connect(server.url) as client:
            client.create_queue("full").send(bytes(100_000))
        for place in (("--url", server.url), ("--data", str(made))):
            words = " ".join([str(LAVANT), "backup", str(tmp_path / "b.tar"), *place])
            shell = ["sh", "-c", f"ulimit -f 8; exec {words}"]
            done = subprocess.run(shell, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
            assert done.returncode == StorageFailed.exit_code
            said = f"{tmp_path / 'b.tar'} could not be written: File too large; nothing is left of it"
            assert done.stderr == f"lavant: {said}\n"
            assert [path.name for path in tmp_path.iterdir()] == ["data"]

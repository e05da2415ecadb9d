"""`lavant check`: fine if and only if a server opens it, never a change, a copy with everything before the damage."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration import data_directories
from tests.integration.data_directories import Writer, opened
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served

from lavant import connect
from lavant.broker.machine.effects import Effect, Record
from lavant.broker.machine.replay import replay
from lavant.broker.storage.disks import FileDisk
from lavant.broker.storage.journal import JournalConfig, apply_upkeep
from lavant.broker.storage.journal.manifest import is_segment
from lavant.broker.storage.journal.salvage import salvage
from lavant.core.errors import LavantError
from lavant.service.storage.check import Level, check
from lavant.service.storage.repair import repair

SMALL = JournalConfig(segment_bytes=8 << 10)


class Noting(Writer):
    """Keeps all records, and a spare segment."""

    records: list[bytes]

    def _perform(self, effects: list[Effect]) -> None:
        self.__dict__.setdefault("records", []).extend(each.data for each in effects if isinstance(each, Record))
        super()._perform(effects)

    def _commit(self) -> None:
        super()._commit()
        while (upkeep := self.journal.upkeep()) is not None:
            apply_upkeep(self.disk, upkeep)
            self.journal.finish_upkeep(upkeep)
        if self.journal.position > self.journal.durable:
            super()._commit()


class Made:
    def __init__(self, directory: Path, records: list[bytes]) -> None:
        self.directory = directory
        self.records = records


@pytest.fixture(scope="module", params=["journal", "snapshot"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Several segments with a bit of everything; a snapshot in the middle, or none."""
    directory = tmp_path_factory.mktemp("made") / "data"
    before, data_directories.CONFIG = data_directories.CONFIG, SMALL
    try:
        writer = Noting(directory)
        data_directories._set_up(writer)
        chance = random.Random(5)
        for step in range(120):
            if step == 60 and request.param == "snapshot":
                writer.compact()
            data_directories._step(writer, chance)
        writer.close()
    finally:
        data_directories.CONFIG = before
    assert len([path for path in directory.iterdir() if is_segment(path.name)]) >= 3
    return Made(directory, writer.records)


class Damage(NamedTuple):
    """What happens to one file."""

    kind: str
    file: int
    at: float
    """Of its length."""
    length: int
    bit: int

    def inflict(self, directory: Path) -> tuple[str, int]:
        """The file, and its first byte that is not as it was."""
        paths = sorted(path for path in directory.iterdir() if path.name not in ("lock",))
        path = paths[self.file % len(paths)]
        data = bytearray(path.read_bytes())
        filled = len(bytes(data).rstrip(b"\0"))
        offset = min(int(self.at * filled), max(0, filled - 1))
        end = min(len(data), offset + self.length)
        if self.kind == "flip" and data:
            data[offset] ^= 1 << self.bit
        elif self.kind == "zero":
            data[offset:end] = bytes(end - offset)
        elif self.kind == "cut":
            del data[offset:]
        elif self.kind == "garble":
            data[offset:end] = bytes((byte * 7 + 13) % 256 for byte in data[offset:end])
        elif self.kind == "swap":
            other = paths[(self.file + 1) % len(paths)]
            theirs = other.read_bytes()
            other.write_bytes(data)
            path.write_bytes(theirs)
            both = sorted((path.name, other.name))
            return next((name for name in both if not is_segment(name)), both[0]), 0
        elif self.kind == "duplicate":
            paths[(self.file + self.length) % len(paths)].write_bytes(data)
            return paths[(self.file + self.length) % len(paths)].name, 0
        elif self.kind == "delete":
            path.unlink()
            return path.name, 0
        path.write_bytes(data)
        return path.name, offset


KINDS = ["flip", "flip", "zero", "cut", "garble", "swap", "duplicate", "delete"]
DAMAGES = st.lists(
    st.builds(
        Damage,
        st.sampled_from(KINDS),
        st.integers(0, 9),
        st.floats(0, 1),
        st.sampled_from([1, 2, 100, 512, 700, 5000]),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=2,
)


def opens(directory: Path, tmp: Path) -> bool:
    """Whether a start succeeds, on a copy."""
    shutil.rmtree(tmp, ignore_errors=True)
    shutil.copytree(directory, tmp)
    try:
        opened(tmp)
    except LavantError:
        return False
    return True


def contents_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def kept_at_least(made: Made, name: str, offset: int) -> int:
    """The position of the last record before a byte of a segment; 0 for other files."""
    found = salvage(FileDisk(made.directory, lock=False))
    assert found is not None
    if not is_segment(name):
        return 0
    before = [block for block in found.blocks if (block.file, block.offset) < (name, offset)]
    whole = before[:-1] if before and before[-1].file == name else before
    return max((block.first + block.records - 1 for block in whole), default=0)


@given(damages=DAMAGES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_directory(made: Made, damages: list[Damage], tmp_path: Path) -> None:
    directory, copy, new = tmp_path / "data", tmp_path / "copy", tmp_path / "new"
    for path in (directory, new):
        shutil.rmtree(path, ignore_errors=True)
    new.with_name("new.left-out.jsonl").unlink(missing_ok=True)
    shutil.copytree(made.directory, directory)
    places = [damage.inflict(directory) for damage in damages]
    before = contents_of(directory)
    report = check(directory)  # two damages leave at least one file by which it is known
    assert contents_of(directory) == before, "a check changes nothing"
    assert report.opens == opens(directory, copy), report
    assert report.opens or any(finding.level is not Level.NOTE for finding in report.findings)
    repaired = repair(directory, new)
    assert contents_of(directory) == before, "a repair changes nothing"
    assert check(new).opens
    expected = replay(None, made.records[: repaired.position])
    assert list(opened(new).snapshot()) == list(expected.snapshot()), "what is kept is a beginning of what was there"
    if all(is_segment(name) for name, _ in places):
        assert repaired.position >= min(kept_at_least(made, *block) for block in places)
    assert repaired.left_out or repaired.position >= len(made.records) or report.opens


def test_a_whole_directory(made: Made, tmp_path: Path) -> None:
    report = check(made.directory)
    assert (report.opens, report.findings) == (True, [])
    repaired = repair(made.directory, tmp_path / "new")
    assert (repaired.position, repaired.problem, repaired.left_out) == (len(made.records), "", {})
    assert list(opened(tmp_path / "new").snapshot()) == list(replay(None, made.records).snapshot())


# ── the command, on what a real server left ───────────────────────────────────────────────────────────────────────────


def run(*arguments: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [LAVANT, *map(str, arguments)], capture_output=True, text=True, timeout=WAIT_S_MAX, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a real server left that was killed."""
    directory = tmp_path_factory.mktemp("served") / "data"
    with Served(directory) as server:
        with connect(server.url) as client:
            queue = client.create_queue("orders")
            for number in range(20):
                queue.send(b"order %d" % number)
            client.subscribe("price > 10", name="dear").close()
        code, _, said = run("check", directory)
        assert (code, f"{directory} is in use, by process {server.process.pid}" in said) == (7, True), said
        server.kill()
    return directory


def copied(served: Path, tmp_path: Path) -> Path:
    shutil.copytree(served, tmp_path / "data")
    return tmp_path / "data"


def damage_at(directory: Path, position: int) -> None:
    """Flip a byte of the block that holds this record."""
    found = salvage(FileDisk(directory, lock=False))
    assert found is not None
    block = next(block for block in found.blocks if block.first <= position < block.first + block.records)
    with (directory / block.file).open("r+b") as file:
        file.seek(block.offset + 60)
        byte = file.read(1)
        file.seek(block.offset + 60)
        file.write(bytes([byte[0] ^ 1]))


def test_a_fine_directory_is_summed_up(served: Path) -> None:
    code, printed, _ = run("check", served)
    assert code == 0
    assert "opens" in printed
    assert "2 queues with 20 messages, 1 subscription," in printed
    code, printed, _ = run("check", served, "--json")
    report = json.loads(printed)
    assert (code, report["opens"], report["findings"], report["contents"]["messages"]) == (0, True, [], 20)


def test_a_damaged_one_is_named_refused_and_saved_up_to_the_damage(served: Path, tmp_path: Path) -> None:
    directory, new = copied(served, tmp_path), tmp_path / "new"
    damage_at(directory, 12)
    code, printed, _ = run("check", directory)
    assert (code, printed.count("DAMAGE")) == (3, 1), printed
    assert "segment-0000000001 is damaged at byte" in printed
    assert f"lavant check {directory} --repair NEW" in printed
    code, _, said = run("serve", "--data", directory, "--port", 0)
    assert (code, f"`lavant check {directory}` says more" in said) == (9, True), said

    code, printed, _ = run("check", directory, "--repair", new, "--json")
    repaired = json.loads(printed)
    assert (code, repaired["position"]) == (0, 11)
    listed = [json.loads(line) for line in Path(repaired["report"]).read_text().splitlines()]
    assert {each["kind"] for each in listed if "kind" in each} >= {"Send", "Subscribe"}
    assert [each for each in listed if each.get("first") == 12], "the record that is damaged"
    assert all(each["time_ms"] > 0 and each["file"] for each in listed if "kind" in each)
    with Served(new) as server, connect(server.url) as client:
        assert [message.body for message in client.queue("orders").peek(100)] == [b"order %d" % n for n in range(9)]
    assert run("check", directory, "--repair", new)[0] == 2, "it never writes over anything"


def test_a_torn_end_is_said_by_the_check_and_by_the_next_start(served: Path, tmp_path: Path) -> None:
    directory = copied(served, tmp_path)
    found = salvage(FileDisk(directory, lock=False))
    assert found is not None
    last = found.blocks[-1]
    with (directory / last.file).open("r+b") as file:
        file.seek(last.offset + 70)
        file.write(bytes(512 - 70))
    remains = f"bytes at byte {last.offset:,} are the remains of a write that a crash interrupted"
    code, printed, _ = run("check", directory)
    assert (code, remains in printed, "are zeros" in printed) == (0, True, True), printed
    with Served(directory) as server:
        server.stop()
        assert remains in server.complaints
        assert f"{last.file}: " in server.complaints


@pytest.mark.parametrize(
    ("ruin", "code", "said"),
    [
        (lambda data: (data / "manifest").unlink(), 3, "manifest is missing"),
        (lambda data: (data / "segment-0000000001").unlink(), 3, "segment-0000000001 is missing"),
        (lambda data: (data / "manifest").write_bytes(b"lavant-journal 2 00000000\n{}\n"), 4, "has format 2"),
        (lambda data: (data / "notes.txt").write_text("hello"), 0, "is not a file of a server"),
    ],
    ids=["manifest", "segment", "too-new", "foreign"],
)
def test_what_is_wrong_has_a_line_and_an_exit_code(
    served: Path, tmp_path: Path, ruin: Callable[[Path], None], code: int, said: str
) -> None:
    directory = copied(served, tmp_path)
    ruin(directory)
    found, printed, _ = run("check", directory)
    assert (found, said in printed) == (code, True), printed


@pytest.mark.parametrize(
    ("make", "why"),
    [(lambda path: None, "does not exist"), (Path.touch, "is "), (Path.mkdir, "is ")],
    ids=["nothing", "file", "empty"],
)
def test_what_is_no_data_directory_is_said_so(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    make(tmp_path / "x")
    code, _, said = run("check", tmp_path / "x")
    assert (code, said.startswith(f"lavant: {tmp_path / 'x'} {why}")) == (2, True), said


@pytest.mark.parametrize(
    ("data", "said"),
    [("file", "it is a file; give --data a directory"), ("file/below", "a part of the path is a file")],
)
def test_a_server_says_why_it_cannot_use_a_directory(tmp_path: Path, data: str, said: str) -> None:
    (tmp_path / "file").touch()
    code, _, complaint = run("serve", "--data", tmp_path / data, "--port", 0)
    assert (code, said in complaint, str(tmp_path / "file") in complaint) == (2, True, True), complaint

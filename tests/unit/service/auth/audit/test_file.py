"""The file of the audit log: whole lines, also when the disk is full, is slow, or the file was renamed."""

from __future__ import annotations

import json
import os
import resource
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, ListQueues, Refused
from lavant.broker.protocol.registry import SCOPES
from lavant.core.errors import InvalidValue
from lavant.service.auth.audit import AuditLog, Origin
from lavant.service.auth.audit.file import AuditFile
from lavant.service.auth.audit.log import DENIED_PER_S
from lavant.service.auth.keys import Principal


def gap(lost: int) -> bytes:
    return b"lost %d\n" % lost


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_lines_are_appended_and_only_the_owner_may_read_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for number in range(2):
        file = AuditFile(path, gap)
        file.append(b"line %d\n" % number)
        file.close()
    assert path.read_bytes() == b"line 0\nline 1\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="No such file or directory"):
        AuditFile(tmp_path / "none" / "audit.log", gap)


def test_a_file_that_was_renamed_is_made_again(tmp_path: Path) -> None:
    path, old = tmp_path / "audit.log", tmp_path / "audit.log.1"
    file = AuditFile(path, gap)
    file.append(b"one\n")
    until(lambda: file.written == 1)
    path.rename(old)
    file.append(b"two\n")
    until(lambda: file.written == 2)
    file.reopen()
    until(path.exists)
    file.append(b"three\n")
    file.close()
    assert (old.read_bytes(), path.read_bytes()) == (b"one\ntwo\n", b"three\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_made_again_goes_on_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    file = AuditFile(directory / "audit.log", gap)
    directory.rename(tmp_path / "moved")
    file.reopen()
    until(lambda: "cannot be opened again" in caplog.text)
    file.append(b"one\n")
    file.close()
    assert (tmp_path / "moved" / "audit.log").read_bytes() == b"one\n"


def test_a_full_disk_is_told_and_so_is_what_was_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.log"
    path.symlink_to("/dev/full")
    file = AuditFile(path, gap)
    for number in range(3):
        file.append(b"lost\n")
        until(lambda number=number: file.lost == number + 1)  # type: ignore[misc]
    until(lambda: file.fault is not None)
    assert "No space left on device" in str(file.fault)
    assert caplog.text.count("the server continues without it") == 1, "once, not with every line"
    path.unlink()
    file.reopen()
    until(path.exists)
    file.append(b"one\n")
    until(lambda: file.written == 1)
    file.append(b"two\n")
    file.close()
    assert path.read_bytes() == b"lost 3\none\ntwo\n"
    assert file.fault is None
    assert "can be written again" in caplog.text


def test_half_a_line_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(path, gap)
    file.append(b"first\n")
    until(lambda: file.written == 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        file.append(b"x" * 99 + b"\n")
        until(lambda: file.lost == 1)
        assert path.read_bytes() == b"first\n"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    file.append(b"second\n")
    file.close()
    assert path.read_bytes() == b"first\nlost 1\nsecond\n"


def test_what_waits_for_a_slow_disk_is_bounded() -> None:
    reading, writing = os.pipe()
    file = AuditFile(Path(f"/proc/self/fd/{writing}"), gap, waiting_bytes_max=1000)
    os.close(writing)
    line = b"x" * 99 + b"\n"
    for _ in range(5000):  # the pipe takes 64 KiB, then nothing
        file.append(line)
        if file.lost:
            break
    until(lambda: file._waiting_bytes <= 1000)
    for _ in range(100):
        file.append(line)
    assert file.lost >= 90
    received = b""
    while b"lost" not in received:
        received += os.read(reading, 1 << 16)
        if not file._waiting_bytes:
            file.append(b"last\n")
    os.close(reading)
    file.close()


# ── lines a second ────────────────────────────────────────────────────────────────────────────────────────────────────


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_whoever_is_denied_again_and_again_has_a_bounded_number_of_lines(tmp_path: Path) -> None:
    path, now_s = tmp_path / "audit.log", [100.0]
    audit = AuditLog(path, monotonic_s=lambda: now_s[0])
    noisy, quiet = (Principal(name=name, scopes=frozenset({"publish"})) for name in ("noisy", "quiet"))
    origin, denied = Origin("native", "192.0.2.1:1"), Refused("AccessDenied", "no")
    for _ in range(1000):
        audit.answered(noisy, origin, ListQueues(), denied)
        audit.not_authenticated(origin, "AccessDenied")
    audit.answered(quiet, origin, ListQueues(), denied)
    now_s[0] += 1
    audit.answered(noisy, origin, ListQueues(), denied)
    audit.not_authenticated(origin, "AccessDenied")
    audit.file.close()
    lines = lines_of(path)
    by_key = {key: [line for line in lines if line.get("key") == key] for key in ("noisy", "quiet", None)}
    assert {key: len(found) for key, found in by_key.items()} == {
        "noisy": DENIED_PER_S + 1, "quiet": 1, None: DENIED_PER_S + 1,
    }  # fmt: skip
    assert by_key["noisy"][-1]["left_out"] == by_key[None][-1]["left_out"] == 1000 - DENIED_PER_S


def test_commands_that_are_not_denied_are_all_told(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(path, monotonic_s=lambda: 0.0)
    who = Principal(name="k", scopes=frozenset(SCOPES))
    for number in range(500):
        answer = Refused("QuotaExceeded", "no") if number % 2 else None
        audit.answered(who, Origin("http", ""), CreateQueue(f"q{number}", QueueConfig()), answer)
    audit.file.close()
    assert [line["queue"] for line in lines_of(path)] == [f"q{number}" for number in range(500)]
    assert {line["outcome"] for line in lines_of(path)} == {"refused", "unknown"}


def test_names_are_cut_and_escaped(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(path)
    who = Principal(name="k", scopes=frozenset(SCOPES))
    audit.answered(who, Origin("http", ""), CreateQueue('evil"\n{"action": "x"}' + "y" * 5000, QueueConfig()), None)
    audit.file.close()
    [line] = lines_of(path)
    assert line["action"] == "CreateQueue"
    assert len(str(line["queue"])) == 200

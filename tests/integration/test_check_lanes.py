"""`lavant check` and the Spark engine's logs: what is owed and cannot be read is damage, and the rest is saved."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.data_directories import Writer, opened

from lavant.broker.protocol.queues import FanOut
from lavant.broker.protocol.subscriptions import Deliver, Subscribe
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.core.identities import derived_identity
from lavant.core.publications.batch import PublicationBatch
from lavant.service.engines.spark.engine import SparkEngine
from lavant.service.storage.check import check
from lavant.service.storage.repair import repair

IDENTITY = (7).to_bytes(8, "big")
"""Of the journal that `Writer` makes."""
BLOCKS, EACH, DELIVERED = 12, 5, 12


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Publications of a lane in several files: all are accepted, some are delivered."""
    directory = tmp_path_factory.mktemp("made") / "data"
    writer = Writer(directory)
    writer.ask(Subscribe("a > 0", "s"))
    log_directory = directory / "spark" / "plain" / "log"
    identity = derived_identity(IDENTITY, "plain")
    with LogWriter(log_directory, identity=identity, file_bytes_max=1_400) as log:
        for block in range(BLOCKS):
            log.append(PublicationBatch.from_dicts([{"a": block * EACH + row} for row in range(EACH)]).records)
        writer.deliver(Deliver(FanOut([], b"", b"", b""), accepted={"plain": log.end}, delivered={"plain": DELIVERED}))
    writer.close()
    assert len(list(log_directory.glob("*.log"))) >= 3
    return directory


def values(directory: Path, end: int) -> list[int]:
    if end == DELIVERED:
        return []
    slabs = LogReader(directory / "spark" / "plain" / "log").read(DELIVERED, end)
    return [row for slab in slabs for row in slab.records.column("a").to_pylist()]


def engine_of(directory: Path) -> SparkEngine:
    lanes = opened(directory).subscriptions.log_offsets
    return SparkEngine(directory / "spark", lanes, slices=1, identity=IDENTITY)


def test_what_waits_is_a_note(made: Path) -> None:
    report = check(made)
    assert (report.opens, [finding.code for finding in report.findings]) == (True, ["owed"])
    assert report.findings[0].said == "48 publications wait for the Spark engine"


@given(
    kind=st.sampled_from(["flip", "cut", "delete", "none"]),
    file=st.integers(0, 9),
    at=st.floats(0, 0.999),
    bit=st.integers(0, 7),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_log(made: Path, kind: str, file: int, at: float, bit: int, tmp_path: Path) -> None:
    directory, new = tmp_path / "data", tmp_path / "new"
    for path in (directory, new):
        shutil.rmtree(path, ignore_errors=True)
    new.with_name("new.left-out.jsonl").unlink(missing_ok=True)
    shutil.copytree(made, directory)
    paths = sorted((directory / "spark" / "plain" / "log").iterdir())
    path = paths[file % len(paths)]
    data = bytearray(path.read_bytes())
    offset = int(at * len(data))
    if kind == "flip":
        data[offset] ^= 1 << bit
        path.write_bytes(data)
    elif kind == "cut":
        path.write_bytes(data[:offset])
    elif kind == "delete":
        path.unlink()
    repaired = repair(directory, new)
    report = check(new)
    assert report.opens, report
    assert report.contents is not None
    end = DELIVERED + report.contents.owed
    engine_of(new).close()
    assert values(new, end) == list(range(DELIVERED, end))
    lost = BLOCKS * EACH - end
    assert bool(lost) == bool(repaired.left_out)
    if lost:
        assert not check(directory).opens
    if check(directory).opens:
        engine_of(directory).close()

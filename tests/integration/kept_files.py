"""Files other than a server's data directory, as earlier versions wrote them: logs, slice stores, keys, states.

The archives `tests/data/*/files.tar.xz` were written by `write`, each with the code of its time; what a reader must
find in them was noted beside. To add one for the code of today:

    python -m tests.integration.kept_files tests/data/NAME
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from tests.unit.broker.slices.net import MANAGER, Net

from lavant.broker.filters import Filter
from lavant.broker.slices import SliceLayout, SliceReader, SliceStore
from lavant.broker.slices.migration.manager import MigrationManager
from lavant.broker.slices.migration.messages import (
    AnyMessage,
    Data,
    DataReceived,
    LinkTimerDue,
    Routed,
    SliceCreated,
    SliceState,
)
from lavant.broker.storage.disks import FileDisk
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.client.publisher.records import encode_publication
from lavant.client.publisher.store import PublicationStore
from lavant.control.placement import Enforcer, HostProbe, PlacementConfig, Probes, SliceProbe
from lavant.core.ids import HostId, PublicationId, SliceId
from lavant.core.publications.batch import PublicationBatch
from lavant.core.publications.publication import Publication

QUOTES = [{"symbol": "IBM", "price": 121.5, "volume": 4000}, {"symbol": "YHOO", "price": 18.25, "halted": True}]
FILTERS = ["symbol = 'IBM' and price > 100", "price < 20 or symbol like 'I%'", "not exists(volume)", "halted = true"]
SCHEMA = Schema.of(NumericAttribute("price", 0, 1000, 0.01), NumericAttribute("volume", 0, 10**6, 1))
RANGES = ["price >= 10 and price < 20", "volume > 3000"]
POINTS = [{"price": 12.5, "volume": 100}, {"price": 121.5, "volume": 4000}]
MESSAGES: list[AnyMessage] = [
    Data(SliceId("AP:0"), SliceId("M:1"), 7, b"content"),
    SliceCreated(3, SliceId("M:1")),
    Routed(4, SliceId("M:1"), {SliceId("AP:0"): 9}),
    SliceState(3, SliceId("M:1"), b"state"),
]


def _not_random(count: int) -> bytes:
    """The same bytes each time, so that an archive that is written again is the same one."""
    return hashlib.shake_256(b"kept files").digest(count)


def write(directory: Path) -> None:
    batch = PublicationBatch.from_dicts(QUOTES)
    with LogWriter(directory / "log") as log:
        log.append(batch.records)
        log.append(batch.records)
    plain = SliceStore.create(directory / "plain", slices=4)
    plain.add([1, 2, 3, 4], [Filter.parse(text) for text in FILTERS])
    plain.remove([3])
    key = Key.generate(SCHEMA, entropy=_not_random)
    key.save(directory / "key.json")
    encrypted = SliceStore.create(directory / "encrypted", scheme="encrypted", slices=2)
    encrypted.add([1, 2], key.encrypt_filters([Filter.parse(text) for text in RANGES]))
    _write_publisher(directory / "publisher")
    _write_enforcer(directory / "enforcer.bin")
    (directory / "manager.bin").write_bytes(_manager_in_the_middle().snapshot())
    (directory / "messages.bin").write_bytes(msgspec.msgpack.encode(MESSAGES))
    (directory / "stimulus.bin").write_bytes(
        msgspec.msgpack.encode([DataReceived(HostId("h"), MESSAGES[0]), LinkTimerDue()])
    )


def found_in(directory: Path) -> dict[str, Any]:
    """What the code of today reads out of such files, as values of JSON."""
    key = Key.load(directory / "key.json")
    points = key.encrypt_publications(POINTS)
    disk = FileDisk(directory / "publisher")
    store = PublicationStore(disk, new_id=1, unpublished=list)
    disk.close()
    manager = MigrationManager({}, ())
    manager.restore((directory / "manager.bin").read_bytes())
    enforcer = _enforcer()
    enforcer.restore((directory / "enforcer.bin").read_bytes())
    messages = msgspec.msgpack.decode((directory / "messages.bin").read_bytes(), type=list[AnyMessage])
    stimuli = msgspec.msgpack.decode((directory / "stimulus.bin").read_bytes(), type=list[DataReceived | LinkTimerDue])
    assert messages == MESSAGES
    assert stimuli == [DataReceived(HostId("h"), MESSAGES[0]), LinkTimerDue()]
    return {
        "log": _log(directory / "log"),
        "plain": _matches(directory / "plain", PublicationBatch.from_dicts(QUOTES)),
        "encrypted": _matches(directory / "encrypted", points),
        "key": {"condition": repr(key), "points": len(points)},
        "publisher": {str(ticket): item.attributes for ticket, item in store.recovered.items()},
        "last ticket": store.last_ticket,
        "manager": msgspec.to_builtins([manager.placement, sorted(manager.migrations), list(manager.waiting)]),
        "enforcer": base64.b64encode(enforcer.snapshot()).decode(),
        "pending": msgspec.to_builtins(enforcer.pending),
    }


def _log(path: Path) -> list[Any]:
    reader = LogReader(path)
    return [PublicationBatch(slab.records).records.to_pylist() for slab in reader.read(0, reader.end())]


def _matches(path: Path, batch: Any) -> list[list[int]]:
    reader = SliceReader(path)
    version = reader.version()
    slices = [reader.matcher(number, version).match(batch) for number in range(reader.settings.slices)]
    return [sorted(id for part in slices for id in part.of(row).tolist()) for row in range(len(batch))]


def _write_publisher(path: Path) -> None:
    kept = [Publication(attributes={"n": n}, id=PublicationId(f"p{n}"), payload=b"x" * n) for n in range(1, 6)]
    disk = FileDisk(path)
    store = PublicationStore(disk, new_id=1, unpublished=lambda: list(enumerate(kept, start=1)))
    for ticket, publication in enumerate(kept, start=1):
        store.stage(ticket, encode_publication(publication))
    store.settle([1, 3])
    store.commit()
    disk.close()


def _enforcer() -> Enforcer:
    return Enforcer(PlacementConfig(policy="threshold"))


def _write_enforcer(path: Path) -> None:
    enforcer = _enforcer()
    host = HostId("host-0000")
    slices = tuple(SliceProbe(id=SliceId(f"M:{n}"), operator="M", cpu=0.4, memory_bytes=1000 + n) for n in range(4))
    for time_ms in range(0, 120_000, 5_000):
        enforcer.observe(Probes(hosts=(HostProbe(id=host, slices=slices),)), time_ms)
        enforcer.decide(time_ms)
    path.write_bytes(enforcer.snapshot())


def _manager_in_the_middle() -> MigrationManager:
    """With migrations under way, in several steps, and some that wait."""
    net = Net(SliceLayout(access=1, match=6, exit=1), 5, hosts=3)
    for number in range(6):
        net.move(SliceId(f"M:{number}"), net.names[(number + 2) % 3])
    for _ in range(12):
        net.step()
    manager: MigrationManager = net.machines[MANAGER]
    assert manager.migrations
    assert manager.waiting
    return manager


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        write(Path(place))
        (target / "files.json").write_text(json.dumps(found_in(Path(place)), indent=1, sort_keys=True) + "\n")
    with tempfile.TemporaryDirectory() as place:
        write(Path(place))
        with tarfile.open(target / "files.tar.xz", "w:xz") as packed:
            packed.add(place, arcname=".")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

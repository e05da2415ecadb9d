"""A process that sends messages into a store as fast as it can, and says what was confirmed; made to be killed.

    python storage_writer.py DIRECTORY

Record 1 creates the queue, record n sends `body(n)`. Each line that is printed is the last record that is confirmed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop

from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, Send, SendEntry
from lavant.broker.storage.journal import JournalConfig
from lavant.service.storage import RecordStore, open_store

CONFIG = JournalConfig(segment_bytes=128 << 10, compaction_bytes_min=256 << 10)
QUEUE = "q"
CLIENTS = 8


def body(number: int) -> bytes:
    return b"%d " % number + b"." * (number % 700)


def record(number: int) -> bytes:
    request: Request = CreateQueue(QUEUE, QueueConfig()) if number == 1 else Send(QUEUE, [SendEntry(body(number))])
    return (1).to_bytes(8, "big") + msgspec.msgpack.encode(request)


def fill(store: RecordStore, durable: int) -> None:
    """As if there were so many clients, each of which sends when its last message is confirmed."""
    while store.position < durable + CLIENTS:
        store.stage(record(store.position + 1))


async def write(directory: Path) -> None:
    store = open_store(directory, CONFIG)
    assert all(store.recovered.chunks) if store.recovered.chunks is not None else True
    assert all(store.recovered.records)

    def on_committed(position: int) -> None:
        print(position, flush=True)
        fill(store, position)

    store.start(on_committed=on_committed, on_failed=lambda error: sys.exit(str(error)))
    fill(store, store.position)
    await asyncio.sleep(1000)


if __name__ == "__main__":
    uvloop.run(write(Path(sys.argv[1])))

"""A server with limits of its own: `python -m tests.integration.limited_server LIMITS [DIRECTORY [BYTES]]`, in JSON.

With BYTES, the journal's segments are so large, and two of them are folded.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from lavant.broker.storage.journal import JournalConfig
from lavant.service.runtime.limits import ServiceLimits
from lavant.service.runtime.process import Started, run
from lavant.service.runtime.settings import ServeSettings


def main() -> None:
    limits = msgspec.convert(msgspec.json.decode(sys.argv[1]), ServiceLimits)
    data = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    settings = ServeSettings(port=0, data=data, limits=limits)
    if len(sys.argv) > 3:
        segment_bytes = int(sys.argv[3])
        config = JournalConfig(segment_bytes=segment_bytes, compaction_bytes_min=2 * segment_bytes)
        settings = replace(settings, journal=config)

    def on_started(started: Started) -> None:
        print(f"listening at lavant://{started.host}:{started.port};", flush=True)

    run(settings, on_started)


if __name__ == "__main__":
    main()

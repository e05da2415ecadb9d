"""A server with limits of its own: `python -m tests.integration.limited_server '{"streams_max": 1}' [DIRECTORY]`."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from lavant.service.limits import ServiceLimits
from lavant.service.process import Started, run
from lavant.service.settings import ServeSettings


def main() -> None:
    limits = msgspec.convert(msgspec.json.decode(sys.argv[1]), ServiceLimits)
    data = Path(sys.argv[2]) if len(sys.argv) > 2 else None

    def on_started(started: Started) -> None:
        print(f"listening at lavant://{started.host}:{started.port};", flush=True)

    run(ServeSettings(port=0, data=data, limits=limits), on_started)


if __name__ == "__main__":
    main()

"""Runs a server, publishes once over the native protocol, and prints the functions that this one publication called.

A program of its own: Python's profiler sees every function of a process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import lavant
from lavant import connect
from lavant.service.runtime.process import Started, run
from lavant.service.runtime.settings import ServeSettings

PACKAGE = str(Path(lavant.__file__).parent) + os.sep
LOCAL_ENGINE = ("service/engines/local.py", "LocalEngine.publish")
calls: list[tuple[str, str]] = []
is_recording = threading.Event()


def record(frame: FrameType, event: str, argument: object) -> None:
    if event == "call" and is_recording.is_set() and frame.f_code.co_filename.startswith(PACKAGE):
        calls.append((frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_qualname))


def publish(url: str) -> None:
    sys.setprofile(None)  # the client is not part of the path
    with connect(url) as client:
        client.subscribe("price > 10", name="traced")
        while LOCAL_ENGINE not in calls:  # the scan engine stands in for it while kernels are loaded
            calls.clear()
            time.sleep(0.5)  # what follows a publication is over
            is_recording.set()
            client.publish({"price": 12})
            is_recording.clear()
    os.kill(os.getpid(), signal.SIGTERM)


def on_started(started: Started) -> None:
    url = f"lavant://{started.host}:{started.port}"
    threading.Thread(target=publish, args=(url,), daemon=True).start()


if __name__ == "__main__":
    sys.setprofile(record)
    threading.setprofile(record)
    run(ServeSettings(data=Path(sys.argv[1]), port=0), on_started)
    sys.setprofile(None)
    print(json.dumps(calls))

"""A temporary server in a subprocess, with a free port and a temporary data directory."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lavant.core.errors import MissingComponent

STOP_S_MAX = 15.0
_ADDRESS = re.compile(r"lavants?://\S+?(?=;)")


@contextmanager
def served(*options: str) -> Iterator[str]:
    """Run a server in the background; yields its address."""
    with tempfile.TemporaryDirectory(prefix="lavant-demo-") as home:
        command = [str(Path(sys.executable).with_name("lavant")), "serve", "--port", "0", "--data", home]
        command += ["--log-level", "warning", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = _ADDRESS.search(line)
            if found is None:
                raise MissingComponent(
                    f"the server did not start; it printed {line!r}; try `lavant serve --memory` by itself"
                )
            yield found[0]
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S_MAX)
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdout.close()

"""A newcomer's first hour, timed: clone, set up, first delivery; then the README from top to bottom, and restarts.

    python3 tools/first_hour.py

Everything happens in a new clone, with an empty home and none of the caller's environment but what pip and uv need to
reach packages; their caches are kept. The clone is removed afterwards.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = re.compile(r"(PIP|UV|SSL|REQUESTS|CURL)_|.*_proxy$", re.IGNORECASE)
"""Variables that say where packages come from."""
STARTS = """
from tests.bench.starts import measure_starts
for name, clock, goal, processor in measure_starts():
    print(f'{clock:>6} s  {name} (goal {goal} s), {processor} s of a processor')
"""


def main() -> None:
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fresh-") as directory:
        clone, home = Path(directory, "lavant"), Path(directory, "home")
        home.mkdir()
        environment = _environment(home)
        _run(["git", "clone", "--quiet", str(ROOT), str(clone)], Path(directory), environment)
        _tell(began_s, "clone")
        _run(["make", "setup"], clone, environment)
        _tell(began_s, "make setup")
        _first_delivery(clone, environment)
        _tell(began_s, "first delivery since the clone began (goal 60 s)")
        python = str(clone / ".venv/bin/python")
        _run([python, "-m", "pytest", "-q", "tests/integration/test_readme.py"], clone, environment)
        _tell(began_s, "README from top to bottom")
        _run([python, "-c", STARTS], clone, environment)


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if KEPT.match(name)}
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    caches = {"PIP_CACHE_DIR": str(cache / "pip"), "UV_CACHE_DIR": str(cache / "uv")}
    return {**caches, **kept, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8"}


def _first_delivery(clone: Path, environment: dict[str, str]) -> None:
    """As in the README, at a port of its own."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = {**environment, "LAVANT_PORT": str(port), "LAVANT_URL": f"lavant://127.0.0.1:{port}"}
    lavant = str(clone / ".venv/bin/lavant")
    log = subprocess.DEVNULL
    with _started([lavant, "serve", "--data", "data"], clone, environment, errors=log) as server:
        assert "listening at" in _line(server)
        with _started([lavant, "sub", "price > 100"], clone, environment) as subscriber:
            assert "subscribed as" in _line(subscriber)
            _run([lavant, "pub", "symbol=IBM", "price=121.5"], clone, environment)
            assert "price=121.5" in _line(subscriber)
            subscriber.terminate()
        server.terminate()


def _started(
    command: list[str], directory: Path, environment: dict[str, str], *, errors: int = subprocess.STDOUT
) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=directory, env=environment, text=True, stdout=subprocess.PIPE, stderr=errors)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _run(command: list[str], directory: Path, environment: dict[str, str]) -> None:
    subprocess.run(command, cwd=directory, env=environment, check=True)


def _tell(began_s: float, what: str) -> None:
    print(f"{time.monotonic() - began_s:6.1f} s  {what}", flush=True)


if __name__ == "__main__":
    main()

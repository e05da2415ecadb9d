"""Installs the wheel of this tree into empty environments, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
RUN_S_MAX = 300


def build_wheel(directory: Path) -> Path:
    _uv("build", "--wheel", "--python", sys.executable, "--out-dir", str(directory), str(ROOT))
    [wheel] = directory.glob("*.whl")
    return wheel


def constraints(directory: Path) -> Path:
    """The versions of uv.lock, so that an installation here is that of tomorrow."""
    file = directory / "constraints.txt"
    options = ("--frozen", "--all-extras", "--no-hashes", "--no-emit-project", "--output-file", str(file))
    _uv("export", "--project", str(ROOT), *options)
    return file


class Installed:
    """An environment with Lavant, and one or no extra."""

    def __init__(
        self, directory: Path, wheel: Path, locked: Path, extra: str = "", python: str = sys.executable
    ) -> None:
        self.directory = directory
        self._bin = directory / "bin"
        _uv("venv", "--python", python, str(directory))
        wanted = f"lavant{f'[{extra}]' if extra else ''} @ {wheel.as_uri()}"
        _uv("pip", "install", "--python", str(self._bin / "python"), "--constraints", str(locked), wanted)

    @property
    def lavant(self) -> Path:
        return self._bin / "lavant"

    @property
    def size_mb(self) -> float:
        files = (path.stat().st_size for path in self.directory.rglob("*") if path.is_file() and not path.is_symlink())
        return sum(files) / 1e6

    def run(self, *arguments: str, url: str = "", stdin: str = "", code: int = 0) -> str:
        """Runs a command in a directory and an environment of its own; returns what it printed, errors included."""
        return self._run([str(self.lavant), *arguments], url, stdin, code)

    def python(self, program: str, url: str = "") -> str:
        return self._run([str(self._bin / "python"), "-c", program], url, "", 0)

    def _run(self, command: list[str], url: str, stdin: str, code: int) -> str:
        environment = {name: os.environ[name] for name in ("HOME", "LAVANT_CACHE_DIR", "LANG") if name in os.environ}
        done = subprocess.run(
            command,
            input=stdin,
            cwd=self.directory,
            env={**environment, "PATH": "/usr/bin:/bin", **({"LAVANT_URL": url} if url else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        assert done.returncode == code, (command, done.returncode, done.stdout)
        return done.stdout


def _uv(*arguments: str) -> None:
    done = subprocess.run([str(UV), "--quiet", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

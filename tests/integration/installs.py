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


class Installed:
    """An environment with Lavant, and one or no extra.

    The packages of the extra come from uv.lock, so that what `make setup` cached is linked, and nothing else fetched.
    Then the wheel is installed with no index at hand: that fails if the extra asks for something that is not there.
    """

    def __init__(self, directory: Path, wheel: Path, extra: str = "", python: str = sys.executable) -> None:
        self.directory = directory
        self._bin = directory / "bin"
        extras = ("--extra", extra) if extra else ()
        locked = directory / "pylock.toml"
        _uv("venv", "--python", python, str(directory))
        _uv("export", "--project", str(ROOT), "--locked", "--no-dev", "--no-emit-project", *extras, "-o", str(locked))
        _uv("pip", "sync", "--python", str(self._bin / "python"), str(locked))
        wanted = f"lavant{f'[{extra}]' if extra else ''} @ {wheel.as_uri()}"
        _uv("pip", "install", "--python", str(self._bin / "python"), "--no-index", wanted)

    @property
    def lavant(self) -> Path:
        return self._bin / "lavant"

    @property
    def size_mb(self) -> float:
        files = (path.stat().st_size for path in self.directory.rglob("*") if path.is_file() and not path.is_symlink())
        return sum(files) / 1e6

    def run(self, *arguments: str, url: str = "", code: int = 0) -> str:
        """Runs a command in a directory and an environment of its own; returns what it printed, errors included."""
        return self._run([str(self.lavant), *arguments], url, code)

    def python(self, program: str, url: str = "") -> str:
        return self._run([str(self._bin / "python"), "-c", program], url, 0)

    def _run(self, command: list[str], url: str, code: int) -> str:
        environment = {name: os.environ[name] for name in ("HOME", "LAVANT_CACHE_DIR", "LANG") if name in os.environ}
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
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


def environment_of_tests(directory: Path, python: str) -> Path:
    """An environment with the sources and all that their tests need; returns its Python."""
    _uv("sync", "--project", str(ROOT), "--frozen", "--python", python, UV_PROJECT_ENVIRONMENT=str(directory))
    return directory / "bin" / "python"


def _uv(*arguments: str, **variables: str) -> None:
    command = [str(UV), "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr

"""The README from top to bottom: every command is run as it is printed, and prints what it says there.

Times, random names, ports and process ids are different each time, so both sides are compared without them.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.server_processes import free_port
from tests.integration.serving import LAVANT, WAIT_S_MAX

README = Path(__file__).resolve().parents[2] / "README.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([a-z_]+\.(?:py|toml))`")
SET_UP = ("make ", ". ", "pip ")
"""Done before the tests run."""
LASTING = ("lavant serve", "lavant sub ")
"""Commands that go on in a terminal of their own."""
_CHANGING = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"tmp-[0-9a-f]+", "tmp-NAME"),
    (r"worker \S+ of", "worker NAME of"),
    (r"(?<=completed)(\s+[\d.]+)+\s+\S+", " SECONDS WORKER"),
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r'"(lease|sent_ms)": \d+', r'"\1": N'),
    (r'@time_ms\\":\d+', r"@time_ms\":N"),
    (r" +$", ""),
)


class Step(NamedTuple):
    """A command with what it prints, or a file to be written."""

    command: str
    output: str = ""
    file: str = ""


def steps(text: str) -> Iterator[Step]:
    """Of the part that has commands; a block of code is the file that the text before it names, or a program."""
    position = 0
    names: list[str] = []
    for block in _BLOCK.finditer(text):
        names += _FILE.findall(text[position : block.start()])
        position = block.end()
        language, content = block[1], block[2]
        if language == "":
            yield from _commands(content)
        elif language == "python" and not any(name.endswith(".py") for name in names):
            yield Step(f"{sys.executable} -c PROGRAM", file=content)
        else:
            suffix = {"python": ".py", "toml": ".toml"}[language]
            name = next(name for name in names if name.endswith(suffix))
            names.remove(name)
            yield Step("", content, name)


def _commands(content: str) -> Iterator[Step]:
    if not content.startswith("$ "):
        yield Step("", content)  # what the program before it prints
        return
    for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Step(command, output)


def comparable(text: str) -> str:
    for pattern, name in _CHANGING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return re.sub(" {2,}", "  ", text).strip()  # columns are as wide as a process's number


class Terminals:
    """Runs commands in a directory; lasting ones go on, and their output is read as far as it is expected."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        port = str(free_port())
        path = f"{LAVANT.parent}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": path, "LAVANT_PORT": port, "LAVANT_URL": f"lavant://127.0.0.1:{port}", "COLUMNS": "200"}
        self._environment = {**os.environ, **own}
        self._lasting: list[tuple[subprocess.Popen[str], Path, str]] = []

    def run(self, command: str) -> str:
        """What a command prints; it must succeed."""
        arguments = ["bash", "-c", command]
        done = subprocess.run(
            arguments,
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S_MAX,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, command: str, expected: str) -> None:
        """Start a lasting command, and wait for its first line."""
        log = self._directory / f"terminal-{len(self._lasting)}"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self._directory,
                env=self._environment,
                stdout=output,
                stderr=subprocess.DEVNULL if command.startswith("lavant serve") else output,
                text=True,
            )
        self._lasting.append((process, log, expected))
        self._wait_for(log, 1, process)

    def check_lasting(self) -> None:
        """What they should have printed is there by now, or soon; later commands may make them print more."""
        for process, log, expected in self._lasting:
            self._wait_for(log, len(expected.strip().splitlines()), process)
            assert comparable(log.read_text()).startswith(comparable(expected))

    def stop(self) -> None:
        for process, _, _ in reversed(self._lasting):
            process.send_signal(signal.SIGINT)
            try:
                process.wait(WAIT_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _wait_for(self, log: Path, lines: int, process: subprocess.Popen[str]) -> None:
        deadline_s = time.monotonic() + 2 * WAIT_S_MAX
        while len(log.read_text().splitlines()) < lines:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.05)


@pytest.mark.external
def test_the_readme_works_as_printed(tmp_path: Path) -> None:
    terminals = Terminals(tmp_path)
    printed = ""
    ran = 0
    try:
        for step in steps(README.read_text()):
            command = step.command
            if command.startswith(SET_UP):
                continue
            ran += 1
            if step.file and command:
                (tmp_path / "program.py").write_text(step.file)
                printed = terminals.run(f"{sys.executable} program.py")
            elif step.file:
                (tmp_path / step.file).write_text(step.output)
            elif not command:
                assert comparable(printed) == comparable(step.output)
            elif command.startswith(LASTING) or command.endswith("&"):
                terminals.start(command.removesuffix("&").strip(), step.output)
            else:
                printed = terminals.run(command)
                assert comparable(printed) == comparable(step.output), f"$ {command}"
        terminals.check_lasting()
    finally:
        terminals.stop()
    assert ran >= 12

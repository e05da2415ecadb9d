"""What all commands have in common: the table, help, exit codes, output for scripts."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.unit.cli.help_pages import REFERENCE, leaf_commands
from typer.testing import CliRunner

from lavant.cli import app, commands, common
from lavant.cli.commands import SECTIONS
from lavant.cli.messaging.publications import attributes_of
from lavant.core import errors
from lavant.core.errors import LavantError

ROOT = Path(__file__).parents[3]
LEAVES = list(leaf_commands())


def parameters(words: tuple[str, ...]) -> set[str]:
    command: Any = typer.main.get_command(commands)
    for word in words:
        command = command.commands[word]
    return {option for parameter in command.params for option in parameter.opts}


def test_a_command_is_in_the_table_once_and_loads() -> None:
    names = [entry.name for entries in SECTIONS.values() for entry in entries]
    assert len(names) == len(set(names))
    assert {words[0] for words in LEAVES} == set(names)


def test_help_imports_no_command() -> None:
    program = """
import sys
sys.argv = ["lavant", "--help"]
from lavant.cli import commands
try:
    commands()
except SystemExit:
    pass
print(sorted(name for name in sys.modules if name.startswith("lavant.")), "pydantic" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['lavant.cli', 'lavant.cli.commands'] False"


@pytest.mark.parametrize(
    "words",
    [
        ("pub", "a=1", "--payload", "x", "--rate", "1.5", "--url", "lavant://127.0.0.1:x"),
        ("serve", "--port", "0", "--data", "/dev/null/data", "--log-level", "error"),
    ],
)
def test_a_command_does_without_pydantic(words: tuple[str, ...]) -> None:
    program = f"import sys; sys.argv = {['lavant', *words]}\n"
    program += "from lavant.cli import app\ntry: app()\nexcept SystemExit: pass\nprint('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert done.stderr.startswith("lavant: ")


def test_the_version_is_that_of_the_distribution() -> None:
    assert CliRunner().invoke(commands, ["--version"]).stdout == f"lavant {version('lavant')}\n"


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_prints_json_can_be_quiet_and_has_help(words: tuple[str, ...]) -> None:
    assert {"--quiet", "-q"} <= parameters(words)
    assert "--json" in parameters(words)
    assert CliRunner().invoke(commands, [*words, "-h"]).exit_code == 0


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_a_command_that_asks_a_server_takes_key_and_ca_file(words: tuple[str, ...]) -> None:
    given = parameters(words)
    if "--url" in given:
        assert {"--key", "--ca-file"} <= given


def test_kinds_of_errors_have_the_exit_codes_of_the_table() -> None:
    documented = re.findall(r"^\| (\d+) \| ([a-z]+)", (REFERENCE / "cli.md").read_text(), re.MULTILINE)
    words = {int(code): word for code, word in documented}
    kinds = {
        errors.Invalid: "usage",
        errors.Missing: "not",
        errors.Denied: "refused",
        errors.Conflict: "refused",
        errors.OverLimit: "refused",
        errors.Unavailable: "unavailable",
        errors.Infeasible: "infeasible",
        errors.Internal: "a",
    }
    assert {kind: words[kind.exit_code] for kind in kinds} == kinds


@pytest.mark.parametrize("error", [errors.UnknownQueue, errors.AccessDenied, errors.ServerUnreachable])
def test_an_error_ends_a_command_with_its_code_and_one_line(
    error: type[LavantError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("it went wrong")

    monkeypatch.setattr("lavant.cli.jobs.job.client", fail)
    monkeypatch.setattr(sys, "argv", ["lavant", "job", "show", "1"])
    with pytest.raises(SystemExit) as ended:
        app()
    assert ended.value.code == error.exit_code
    assert capsys.readouterr().err == "lavant: it went wrong\n"


def test_a_table_has_one_line_per_row_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    common.print_table(("name", "count"), [(long, "7"), ("two\nlines", "1,000")], numbers=("count",))
    header, *rows = capsys.readouterr().out.splitlines()
    assert [row.split() for row in rows] == [[long, "7"], ["two\\nlines", "1,000"]]
    assert len({len(line) for line in (header, *rows)}) == 1


def test_quiet_leaves_results_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    common.set_quiet(True)
    common.report("done", as_json=False, done=True)
    common.note("by the way")
    common.report("done", as_json=True, done=True)
    common.set_quiet(False)
    assert capsys.readouterr() == ('{"done": true}\n', "")


@pytest.mark.parametrize(("is_quiet", "is_terminal"), [(True, True), (False, False)])
def test_progress_is_for_terminals_and_not_quiet(
    is_quiet: bool, is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1" if is_terminal else "")  # Rich takes it for a terminal then
    common.set_quiet(is_quiet)
    with common.progress("steps", 2) as step:
        step("one")
    common.set_quiet(False)
    assert capsys.readouterr() == ("", "")


def test_every_progress_is_shown_on_the_console_that_can_be_quiet() -> None:
    own = [path.name for path in sorted((ROOT / "src/lavant/cli").rglob("*.py")) if "stderr=True" in path.read_text()]
    assert own == ["common.py"]


def commands_in_messages() -> list[tuple[str, str]]:
    """Every command in backquotes in a string of the program, and its file."""
    return [
        (path.relative_to(ROOT).as_posix(), text)
        for path in sorted((ROOT / "src").rglob("*.py"))
        for text in re.findall(r"`lavant ([a-z][^`\n]*)`", path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("file", "text"), commands_in_messages())
def test_a_command_that_a_message_names_exists_with_its_options(file: str, text: str) -> None:
    known = {words[:length] for words in LEAVES for length in range(1, len(words) + 1)}
    words = tuple(
        word for word in re.split(r"\s+", text.split(" | ", maxsplit=1)[0]) if re.fullmatch("[a-z][a-z-]*", word)
    )
    length = max((length for length in range(1, len(words) + 1) if words[:length] in known), default=0)
    assert length, f"{file}: there is no `lavant {text}`"
    if words[:length] in LEAVES:
        assert set(re.findall(r"--[a-z-]+", text)) <= parameters(words[:length]), file


def test_a_message_that_suggests_a_server_gives_it_a_place_for_its_data() -> None:
    suggested = [text for _, text in commands_in_messages() if text.startswith("serve ") and "--port" in text]
    assert suggested
    assert all("--data" in text or "--memory" in text for text in suggested)


OF_OTHERS = {"--json"}
"""An option of curl."""


def options_in_errors() -> list[tuple[str, str]]:
    """Every option in a string of a `raise`, and its file; commands in backquotes have their own test."""
    return sorted(
        {
            (path.relative_to(ROOT).as_posix(), option)
            for path in (ROOT / "src").rglob("*.py")
            for raised in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(raised, ast.Raise)
            for part in ast.walk(raised)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", re.sub("`[^`]*`", "", part.value))
        }
    )


@pytest.mark.parametrize(("file", "option"), options_in_errors())
def test_an_option_that_an_error_names_exists(file: str, option: str) -> None:
    """Errors of a server name its own options."""
    is_server = file.startswith("src/lavant/service/") and "/storage/" not in file
    known = parameters(("serve",)) if is_server else {each for words in LEAVES for each in parameters(words)}
    assert option in known | OF_OTHERS, f"{file}: no command has {option}"


def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    program = "from lavant.cli import app; app()"
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    return subprocess.run([sys.executable, "-c", program, *words], text=True, check=False, **streams)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--version", "--help", "config show", "config show --json"])
def test_output_to_a_full_disk_is_one_line_and_a_failure(words: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = run(*words.split(), stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == errors.Internal.exit_code
    assert done.stderr == "lavant: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_ends_a_command_without_a_word(unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = run("config", "show", stdout=closed, env={"PYTHONUNBUFFERED": unbuffered})
    assert (done.returncode, done.stderr) == (1, "")


def test_a_command_runs_with_all_its_streams_closed() -> None:
    shell = f'"{sys.executable}" -c "from lavant.cli import app; app()" config show <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", shell], check=False).returncode == 0


def test_a_bug_has_a_traceback_and_the_code_of_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lavant.cli.jobs.job.client", None)
    monkeypatch.setattr(sys, "argv", ["lavant", "job", "show", "1"])
    with pytest.raises(SystemExit) as ended:
        app()
    assert ended.value.code == errors.Internal.exit_code
    assert "TypeError" in capsys.readouterr().err


NOT_UTF8 = os.fsdecode(b"\xff")


TAKING_BYTES = [words for words in LEAVES if words[0] in ("explain", "queue", "job", "schedule")]
TAKING_BYTES.remove(("job", "wait"))  # it waits for a server


@pytest.mark.parametrize("words", TAKING_BYTES, ids=" ".join)
def test_arguments_that_are_not_utf8_give_no_traceback(words: tuple[str, ...]) -> None:
    command: Any = typer.main.get_command(commands)
    for word in words:
        command = command.commands[word]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    asks = ["--url", "lavant://127.0.0.1:1"] if "--url" in parameters(words) else []
    result = CliRunner().invoke(commands, [*words, *(NOT_UTF8 for _ in arguments), *asks])
    assert isinstance(result.exception, SystemExit | LavantError), result.exception


def test_a_value_that_is_not_utf8_is_text() -> None:
    assert attributes_of([f"a={NOT_UTF8}"]) == {"a": NOT_UTF8}  # which the client refuses by its name

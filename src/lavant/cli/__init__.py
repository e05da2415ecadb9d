"""The command line, `lavant …`: one file per command, loaded when the command is called, so that `--help` is fast."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from lavant.cli.commands import HELP_OPTIONS, CommandTable

EXIT_PIPE_CLOSED = 1

commands = typer.Typer(
    name="lavant",
    cls=CommandTable,
    help="Elastic publish/subscribe with content filters, durable queues, workflows and Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": HELP_OPTIONS, "max_content_width": 120},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version  # noqa: PLC0415

        print(f"lavant {version('lavant')}")
        raise typer.Exit


@commands.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Options that stand before a command."""


def app() -> None:
    """Runs a command. A LavantError ends it with one message and the error's exit code, not with a traceback; so does
    a disk or a pipe that takes no more output. Anything else is a bug, with a traceback and the exit code of Internal.
    """
    _open_standard_streams()
    try:
        try:
            commands()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
        sys.exit(EXIT_PIPE_CLOSED)
    except Exception as error:
        from lavant.core.errors import Internal, LavantError, StorageFailed  # noqa: PLC0415  `--help` needs none
        from lavant.core.packages import missing_package  # noqa: PLC0415

        named: Exception | None = missing_package(error) if isinstance(error, ImportError) else error
        if isinstance(named, OSError) and not isinstance(named, LavantError):
            _give_up_output()
            place = "the output cannot be written" if named.filename is None else named.filename
            named = StorageFailed(f"{place}: {named.strerror or named}")
        if not isinstance(named, LavantError):
            sys.excepthook(type(error), error, error.__traceback__)
            sys.exit(Internal.exit_code)
        print(f"lavant: {named}", file=sys.stderr)
        sys.exit(named.exit_code)


def _open_standard_streams() -> None:
    """Python has None for a stream that was closed before the start; commands may read and write it nevertheless."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  open until the end


def _give_up_output() -> None:
    """Python would try to write what standard output still holds at the end, and complain about it once more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

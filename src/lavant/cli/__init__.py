"""The command line, `lavant …`: one file per command, loaded when the command is called, so that `--help` is fast."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lavant.cli.commands import HELP_OPTIONS, CommandTable

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
    """Runs a command. A LavantError ends it with one message and the error's exit code, not with a traceback."""
    try:
        commands()
    except Exception as error:
        from lavant.core.errors import LavantError  # noqa: PLC0415  `--help` needs none
        from lavant.core.packages import missing_package  # noqa: PLC0415

        named = missing_package(error) if isinstance(error, ImportError) else error
        if not isinstance(named, LavantError):
            raise
        print(f"lavant: {named}", file=sys.stderr)
        sys.exit(named.exit_code)

"""Refuses URIs where an option or argument expects a local path."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import typer

from lavant.core.files import local_path


def take_local_paths(commands: typer.Typer) -> None:
    """Check the `Path` parameters of all commands and groups."""
    for command in commands.registered_commands:
        assert command.callback is not None
        command.callback = _with_local_paths(command.callback)
    for group in commands.registered_groups:
        assert group.typer_instance is not None
        take_local_paths(group.typer_instance)


def _with_local_paths(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def run(**given: Any) -> Any:
        taken = {name: local_path(value) if isinstance(value, Path) else value for name, value in given.items()}
        return command(**taken)

    return run

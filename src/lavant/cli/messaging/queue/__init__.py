"""`lavant queue …`: inspect and use the queues of a server, over the native protocol."""

from __future__ import annotations

import typer

from lavant.cli.messaging.queue.manage import create, delete, info, ls, purge, redrive, set_attributes
from lavant.cli.messaging.queue.messages import peek, receive, send

queue = typer.Typer(help="Inspect and use the queues of a server.", no_args_is_help=True)
for command in (ls, info, create, set_attributes, send, receive, peek, redrive, purge, delete):
    queue.command(command.__name__.partition("_")[0])(command)

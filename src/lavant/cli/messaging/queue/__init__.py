"""`lavant queue …`: look at a server's queues and work with them, over the compact protocol."""

from __future__ import annotations

import typer

from lavant.cli.messaging.queue.manage import create, delete, info, ls, purge, redrive
from lavant.cli.messaging.queue.messages import peek, receive, send

queue = typer.Typer(help="Look at the queues of a server, and work with them.", no_args_is_help=True)
for command in (ls, info, create, send, receive, peek, redrive, purge, delete):
    queue.command()(command)

"""`lavant reproduce …`: the experiments of the papers, one file per paper."""

from __future__ import annotations

import typer

from lavant.cli.planning.reproduce.allocation import allocation
from lavant.cli.planning.reproduce.e_streamhub import e_streamhub
from lavant.cli.planning.reproduce.publisher import publisher
from lavant.cli.planning.reproduce.reliable_queue import reliable_queue

reproduce = typer.Typer(help="Run the experiments of the papers again.", no_args_is_help=True)
reproduce.command()(publisher)
reproduce.command()(allocation)
reproduce.command("e-streamhub")(e_streamhub)
reproduce.command("reliable-queue")(reliable_queue)

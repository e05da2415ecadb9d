"""`lavant …`: one file a command. Commands load what they need when they are called, so `--help` is quick."""

from __future__ import annotations

import sys

import typer

from lavant.console.cli.bench import bench
from lavant.console.cli.check import check
from lavant.console.cli.config import config
from lavant.console.cli.demo import demo
from lavant.console.cli.doctor import doctor
from lavant.console.cli.encrypt import encrypt, keygen
from lavant.console.cli.explain import explain
from lavant.console.cli.job import job
from lavant.console.cli.keys import keys
from lavant.console.cli.model import model
from lavant.console.cli.paths import take_local_paths
from lavant.console.cli.plan import plan
from lavant.console.cli.pub import pub
from lavant.console.cli.queue import queue
from lavant.console.cli.reproduce import reproduce
from lavant.console.cli.resources import resources
from lavant.console.cli.serve import serve
from lavant.console.cli.sim import sim
from lavant.console.cli.stream import stream
from lavant.console.cli.sub import sub
from lavant.console.cli.subscriptions import subscriptions
from lavant.console.cli.sweep import sweep
from lavant.console.cli.top import top
from lavant.console.cli.warm_up import warm_up
from lavant.console.cli.worker import worker
from lavant.console.cli.workflow import workflow
from lavant.core.errors import LavantError

BAD_INPUT = 2

commands = typer.Typer(
    name="lavant",
    help="Elastic publish/subscribe: serve, publish, subscribe; durable queues; Spark; a simulated world.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_PLAIN = (serve, pub, sub, demo, stream, keygen, encrypt, sweep, top, doctor, check, plan, worker, resources, warm_up)
for command in _PLAIN:
    commands.command()(command)
commands.add_typer(subscriptions, name="subscriptions")
commands.add_typer(queue, name="queue")
commands.add_typer(config, name="config")
commands.add_typer(bench, name="bench")
commands.add_typer(explain, name="explain")
commands.add_typer(keys, name="keys")
commands.add_typer(sim, name="sim")
commands.add_typer(reproduce, name="reproduce")
commands.add_typer(model, name="model")
commands.add_typer(workflow, name="workflow")
commands.add_typer(job, name="job")
take_local_paths(commands)


def app() -> None:
    """Run a command; an error of Lavant's own is one clear message and exit code 2, not a traceback."""
    try:
        commands()
    except LavantError as error:
        print(f"lavant: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)

"""The command line, `lavant …`: one file per command. Commands import packages when called, so `--help` is fast."""

from __future__ import annotations

import sys

import typer

from lavant.cli.bench import bench
from lavant.cli.common import take_local_paths
from lavant.cli.demo import demo
from lavant.cli.encrypt import encrypt, keygen
from lavant.cli.explain import explain
from lavant.cli.federation import federation
from lavant.cli.jobs.job import job
from lavant.cli.jobs.resources import resources
from lavant.cli.jobs.worker import worker
from lavant.cli.jobs.workflow import workflow
from lavant.cli.messaging.pub import pub
from lavant.cli.messaging.queue import queue
from lavant.cli.messaging.sub import sub
from lavant.cli.messaging.subscriptions import subscriptions
from lavant.cli.planning.model import model
from lavant.cli.planning.petri import petri
from lavant.cli.planning.plan import plan
from lavant.cli.planning.queue_compare import compare_queue
from lavant.cli.planning.queue_plan import plan_queue
from lavant.cli.planning.reproduce import reproduce
from lavant.cli.planning.sim import sim
from lavant.cli.planning.size import size
from lavant.cli.planning.sweep import sweep
from lavant.cli.reslice import reslice
from lavant.cli.server.check import check
from lavant.cli.server.config import config
from lavant.cli.server.doctor import doctor
from lavant.cli.server.keys import keys
from lavant.cli.server.serve import serve
from lavant.cli.server.top import top
from lavant.cli.server.warm_up import warm_up
from lavant.cli.spark import spark
from lavant.cli.stream import stream
from lavant.core.errors import LavantError

commands = typer.Typer(
    name="lavant",
    help="Elastic publish/subscribe with content filters, durable queues, workflows and Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_PLAIN = (
    serve,
    pub,
    sub,
    demo,
    stream,
    reslice,
    keygen,
    encrypt,
    sweep,
    top,
    doctor,
    check,
    plan,
    worker,
    resources,
    warm_up,
)
for command in _PLAIN:
    commands.command()(command)
commands.add_typer(subscriptions, name="subscriptions")
queue.command("plan")(plan_queue)
queue.command("compare")(compare_queue)
commands.add_typer(queue, name="queue")
commands.add_typer(config, name="config")
commands.add_typer(bench, name="bench")
commands.add_typer(explain, name="explain")
commands.add_typer(keys, name="keys")
commands.add_typer(federation, name="federation")
commands.add_typer(sim, name="sim")
commands.add_typer(reproduce, name="reproduce")
commands.add_typer(model, name="model")
commands.add_typer(petri, name="petri")
commands.add_typer(workflow, name="workflow")
commands.add_typer(job, name="job")
spark.command()(size)
commands.add_typer(spark, name="spark")
take_local_paths(commands)


def app() -> None:
    """Runs a command. A LavantError ends it with one message and the error's exit code, not with a traceback."""
    try:
        commands()
    except LavantError as error:
        print(f"lavant: {error}", file=sys.stderr)
        sys.exit(error.exit_code)

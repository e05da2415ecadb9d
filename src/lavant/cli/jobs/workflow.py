"""`lavant workflow`: check definitions of job types."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.cli.common import AsJson, print_json, print_table
from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.broker.workflows.definitions.definition import JobDefinition, Workflows

workflow = typer.Typer(help="Check definitions of job types.", no_args_is_help=True)


@workflow.callback()
def callback() -> None:
    """Check definitions of job types."""  # without a callback, Typer drops the name of a single command


@workflow.command()
def check(
    file: Annotated[Path, typer.Argument(help="TOML file of topics and job types")],
    as_json: AsJson = False,
) -> None:
    """Check definitions of job types, and show them as graphs and as a table of transitions.

    Exit code 2, with a message, if a definition is invalid.
    """
    from lavant.broker.workflows.definitions.toml_file import read_workflows  # noqa: PLC0415

    workflows = read_workflows(_read(file))
    if as_json:
        print_json({"topics": workflows.topics, "jobs": [_as_json(job) for job in workflows.jobs]})
    else:
        _print(workflows)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidValue(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{file} is not UTF-8 text: byte {error.start} is invalid") from None


def _print(workflows: Workflows) -> None:
    from lavant.broker.workflows.definitions.dag import JobType  # noqa: PLC0415
    from lavant.broker.workflows.definitions.text_graph import draw  # noqa: PLC0415

    for job in workflows.jobs:
        visits = ", ".join(f"{topic} {count}" for topic, count in _visits(job).items())
        print(f"{job.name}: visits {visits}")
        for line in draw(job):
            print(f"  {line}")
        print()
    rows = [row for job in workflows.jobs for row in JobType(job).rows()]
    print_table(
        ("job type", "from", "to", "when"),
        [(row.job, _or_dash(row.from_), _or_dash(row.to), row.when) for row in rows],
    )


def _visits(job: JobDefinition) -> dict[str, int]:
    """Visits of a job to each topic at most, in the order of its tasks."""
    visits: dict[str, int] = {}
    for task in job.tasks:
        visits[task.topic] = visits.get(task.topic, 0) + 1
    return visits


def _or_dash(task: str | None) -> str:
    return "–" if task is None else task


def _as_json(job: JobDefinition) -> dict[str, Any]:
    from msgspec.structs import asdict  # noqa: PLC0415

    tasks = [{**asdict(task), "next": [asdict(arrow) for arrow in task.next]} for task in job.tasks]
    return {**asdict(job), "tasks": tasks, "visits": _visits(job)}

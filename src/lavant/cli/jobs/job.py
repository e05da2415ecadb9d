"""`lavant job define | submit | show | ls | types | wait | cancel`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.cli.common import (
    EXIT_FAILED,
    AsJson,
    CaFile,
    Key,
    Url,
    body_of,
    bytes_of,
    client,
    print_json,
    print_table,
    report,
    time_of,
)
from lavant.client.values.mirror import to_protocol
from lavant.core.addresses import QUEUES_URL
from lavant.core.errors import LavantError

if TYPE_CHECKING:
    from lavant.broker.protocol.jobs import JobView

job = typer.Typer(help="Define job types; submit, show and cancel jobs.", no_args_is_help=True)

Number = Annotated[int, typer.Argument(metavar="JOB", help="number of the job", min=1)]
COMPLETED, RUNNING = "completed", "running"


@job.command("define")
def define(
    file: Annotated[Path, typer.Argument(help="TOML file of topics and job types")],
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Define or redefine job types and their topics. Running jobs keep their old definition."""
    with client(url, key, ca_file) as server:
        server.define_jobs(file)
    report(f"defined the job types of {file}", as_json=as_json, defined=str(file))


@job.command("submit")
def submit(
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="job type")],
    input_: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="input of the job, as text; - reads standard input")
    ] = None,
    name: Annotated[str, typer.Option(help="idempotency key: a second submission with it returns the same job")] = "",
    wait_s: Annotated[
        float | None, typer.Option("--wait", min=0, help="wait up to this many seconds for the job to end")
    ] = None,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job and print its number. With --wait, exit code 1 if it did not complete."""
    given = sys.stdin.buffer.read() if input_ == "-" else bytes_of(input_ or "")
    with client(url, key, ca_file) as server:
        number = server.submit(job_type, given, name=name)
        if wait_s is None:
            print_json({"job": number}) if as_json else print(number)
            return
        view = to_protocol(server.wait(number, timeout_s=wait_s))
    _finish(view, as_json=as_json)


@job.command("wait")
def wait(
    number: Number,
    timeout_s: Annotated[float | None, typer.Option("--timeout", min=0, help="seconds to wait at most")] = None,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Wait until a job ends, and show it. Exit code 1 if it did not complete."""
    with client(url, key, ca_file, is_patient=True) as server:
        view = to_protocol(server.wait(number, timeout_s=timeout_s))
    _finish(view, as_json=as_json)


@job.command("show")
def show(number: Number, url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """Show a job: its state, the attempts at its tasks, and its results."""
    with client(url, key, ca_file) as server:
        _print(to_protocol(server.job(number)), as_json=as_json)


@job.command("ls")
def ls(
    state: Annotated[
        str, typer.Option(help="list only jobs in this state: running, completed, failed or cancelled")
    ] = "",
    last: Annotated[int, typer.Option(min=1, max=100_000, help="number of jobs to list, the latest")] = 100,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, oldest first."""
    from collections import deque  # noqa: PLC0415

    with client(url, key, ca_file) as server:
        found = [to_protocol(each) for each in deque(server.jobs(state=state), maxlen=last)]
    if as_json:
        from msgspec.structs import asdict  # noqa: PLC0415

        print_json([asdict(each) for each in found])
        return
    rows = [
        (str(each.number), each.job_type, each.state, time_of(each.submitted_ms), _took(each), each.name)
        for each in found
    ]
    print_table(("job", "type", "state", "submitted", "took s", "name"), rows, numbers=("job", "took s"))


@job.command("types")
def types(url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """List job types, how many jobs of each run and ended, and the topics of their tasks."""
    from lavant.broker.protocol.jobs import DescribeJobType, ListJobTypes  # noqa: PLC0415
    from lavant.client.connection.calls import Call  # noqa: PLC0415

    with client(url, key, ca_file) as server:
        [listed] = server.pipeline([Call(ListJobTypes(), lambda answer: answer)])
        if isinstance(listed, LavantError):
            raise listed
        views = server.pipeline([Call(DescribeJobType(name), lambda answer: answer) for name in listed.types])
    totals = ("running", "completed", "failed", "cancelled")
    found = [
        {
            "type": name,
            **{total: getattr(view, total) for total in totals},
            "topics": sorted({task.topic for task in view.definition.tasks}),
        }
        for name, view in zip(listed.types, views, strict=True)
        if not isinstance(view, LavantError)
    ]
    if as_json:
        print_json(found)
        return
    rows = [(each["type"], *(f"{each[total]:,}" for total in totals), " ".join(each["topics"])) for each in found]
    print_table(("type", *totals, "topics"), rows, numbers=totals)


@job.command("cancel")
def cancel(
    number: Number, url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """Cancel a job. Exit code 1 if it had ended already."""
    with client(url, key, ca_file) as server:
        is_new = server.cancel(number)
    text = f"job {number} is cancelled" if is_new else f"job {number} had ended already"
    report(text, as_json=as_json, job=number, is_cancelled=is_new)
    raise typer.Exit(0 if is_new else EXIT_FAILED)


def _finish(view: JobView, *, as_json: bool) -> None:
    _print(view, as_json=as_json)
    raise typer.Exit(0 if view.state == COMPLETED else EXIT_FAILED)


def _print(view: JobView, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_dict(view))
        return
    why = f": {view.reason}" if view.reason else ""
    print(f"job {view.number} of type {view.job_type}, {view.state}{why}; submitted {time_of(view.submitted_ms)}")
    rows = [
        (
            task.name,
            task.topic,
            str(place),
            attempt.outcome or task.state,
            _after(attempt.queued_ms, attempt.started_ms),
            _after(attempt.started_ms, attempt.ended_ms),
            attempt.worker,
            attempt.reason,
        )
        for task in view.tasks
        for place, attempt in enumerate(task.attempts, start=1)
    ]
    columns = ("task", "topic", "attempt", "outcome", "waited s", "took s", "worker", "reason")
    print_table(columns, rows, numbers=("attempt", "waited s", "took s"))
    for name, result in view.results.items():
        print(f"{name} returned {_as_result(result)}")


def _as_dict(view: JobView) -> dict[str, Any]:
    from msgspec.structs import asdict  # noqa: PLC0415

    shown = {field: value for field, value in asdict(view).items() if field != "input_digest"}
    return {
        **shown,
        "tasks": [{**asdict(task), "attempts": [asdict(each) for each in task.attempts]} for task in view.tasks],
        "results": {name: _as_result(result) for name, result in view.results.items()},
        "input": body_of(view.input),
        "trace": view.trace.headers(),
    }


def _as_result(result: Any) -> dict[str, Any]:
    return {**body_of(result.body), "attributes": result.attributes}


def _took(job: Any) -> str:
    return _after(job.submitted_ms, job.ended_ms)


def _after(from_ms: int, to_ms: int) -> str:
    return f"{(to_ms - from_ms) / 1000:.3f}" if from_ms and to_ms else "–"

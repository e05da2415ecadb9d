"""`lavant bench …`: quick benchmarks of this machine or a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.cli.common import AsJson, CaFile, Key, print_json, print_table, progress_console

if TYPE_CHECKING:
    from lavant.cli.reports.benchmarks import BenchmarkResult

bench = typer.Typer(help="Quick benchmarks; `make bench` in the sources runs the thorough ones.", no_args_is_help=True)

Seconds = Annotated[float, typer.Option(min=0.1, help="duration")]
Server = Annotated[
    str | None, typer.Option(help="address of the server; by default a temporary one is started", envvar="LAVANT_URL")
]


class Workload(StrEnum):
    STOCK = "stock"
    SYNTHETIC = "synthetic"
    ENCRYPTED = "encrypted"


@bench.command()
def pub(
    seconds: Seconds = 5.0,
    rate: Annotated[
        float | None, typer.Option(min=1, help="publications per second; by default as many as possible")
    ] = None,
    subscribers: Annotated[
        int, typer.Option(min=1, max=1000, help="number of subscribers; each receives every publication")
    ] = 4,
    url: Server = None,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure throughput and latency from publisher to subscribers."""
    from lavant.cli.reports.benchmarks import publish  # noqa: PLC0415

    with _server(url) as address, _progress("publishing", seconds) as tick:
        work = publish(address, key, ca_file, seconds=seconds, rate=rate, subscribers=subscribers, tick=tick)
        results = asyncio.run(work)
    _show(results, as_json=as_json)


@bench.command()
def queue(
    seconds: Seconds = 5.0,
    clients: Annotated[int, typer.Option(min=1, max=1000, help="concurrent clients, all in this process")] = 8,
    batch: Annotated[int, typer.Option(min=1, max=1000, help="messages per request")] = 1,
    size: Annotated[int, typer.Option(min=0, max=1 << 20, help="size of a message in bytes")] = 1000,
    url: Server = None,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure throughput and latency of send, receive and acknowledge."""
    from lavant.cli.reports.benchmarks import cycle  # noqa: PLC0415

    with _server(url) as address, _progress("queueing", seconds) as tick:
        work = cycle(address, key, ca_file, seconds=seconds, clients=clients, batch=batch, size_bytes=size, tick=tick)
        results = asyncio.run(work)
    _show(results, as_json=as_json)


@bench.command()
def match(
    workload: Annotated[
        Workload, typer.Argument(help="workload that filters and publications are drawn from")
    ] = Workload.STOCK,
    seconds: Seconds = 3.0,
    subscriptions: Annotated[int, typer.Option(min=1, help="number of subscriptions")] = 100_000,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="publications per batch")] = 64,
    as_json: AsJson = False,
) -> None:
    """Measure matching in this process, on one thread."""
    from lavant.cli.reports.benchmarks import match as run  # noqa: PLC0415

    with _progress("matching", seconds) as tick:
        results = run(workload, seconds=seconds, subscriptions=subscriptions, batch=batch, tick=tick)
    _show(results, as_json=as_json)


def _server(url: str | None) -> Any:
    from lavant.cli.reports.demonstration.server import served  # noqa: PLC0415

    return served() if url is None else nullcontext(url)


@contextmanager
def _progress(what: str, seconds: float) -> Iterator[Callable[[float], None]]:
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=progress_console(), transient=True) as progress:
        task = progress.add_task(what, total=seconds)
        yield lambda passed_s: progress.update(task, completed=passed_s)


def _show(results: list[BenchmarkResult], *, as_json: bool) -> None:
    import msgspec  # noqa: PLC0415

    if as_json:
        print_json([msgspec.to_builtins(each) for each in results])
        return
    print_table(
        ("what", "count", "per second", "p50 ms", "p99 ms"),
        [
            (each.what, f"{each.count:,}", f"{each.per_s:,.0f}", f"{each.p50_ms:,.2f}", f"{each.p99_ms:,.2f}")
            for each in results
        ],
        numbers=("count", "per second", "p50 ms", "p99 ms"),
    )

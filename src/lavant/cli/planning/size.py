"""`lavant spark size`: how many executors a load needs on Spark, and what they do with it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import EXIT_FAILED, AsJson

if TYPE_CHECKING:
    from lavant.pipeline.sizing.estimate import PipelineLoad, SizingEstimate


class FilterKind(StrEnum):
    equality = "equality"
    ranges = "ranges"
    encrypted = "encrypted"


def size(
    subscriptions: Annotated[int, typer.Option(help="number of subscriptions")],
    rate: Annotated[float, typer.Option(help="publications a second")],
    matches: Annotated[float, typer.Option(help="subscriptions that a publication matches")],
    executors: Annotated[int, typer.Option(help="executors that may be used, of one core each")],
    kind: Annotated[
        FilterKind, typer.Option(help="filters: with an equality, of ranges only, or encrypted")
    ] = FilterKind.ranges,
    publication_bytes: Annotated[
        float | None, typer.Option(help="size of a publication in the log; by default that of the measured workload")
    ] = None,
    network: Annotated[float, typer.Option(help="bytes a second through a machine's network")] = 1.25e9,
    storage: Annotated[float, typer.Option(help="bytes a second that the storage takes")] = 2e9,
    shared: Annotated[
        bool, typer.Option("--shared/--not-shared", help="whether executors reach the storage of the results")
    ] = True,
    hosts: Annotated[int | None, typer.Option(help="use so many executors; by default the fewest that suffice")] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate hosts, tasks, bytes, memory and delay of a load on Spark from measured constants.

    Exit code 1 if the load is too high for the cluster.
    """
    import msgspec  # noqa: PLC0415

    from lavant.core.errors import InvalidValue  # noqa: PLC0415
    from lavant.pipeline.sizing import estimate as sizing  # noqa: PLC0415

    load = sizing.PipelineLoad(
        subscriptions=subscriptions,
        publications_per_s=rate,
        matches=matches,
        kind=kind.value,
        publication_bytes=publication_bytes,
    )
    cluster = sizing.ClusterShape(
        executors=executors, network_bytes_per_s=network, storage_bytes_per_s=storage, is_storage_shared=shared
    )
    if hosts is not None and not 1 <= hosts <= executors:
        raise InvalidValue(f"--hosts must be between 1 and {executors} executors, got {hosts}")
    found = sizing.estimate(load, cluster, hosts=hosts)
    print(msgspec.json.encode(found).decode() if as_json else _text(load, found, executors))
    if not found.is_feasible:
        raise typer.Exit(EXIT_FAILED)


def _text(load: PipelineLoad, found: SizingEstimate, executors: int) -> str:
    scarcest = found.resources[0]
    lines = [
        (
            "load",
            f"{load.subscriptions:,} subscriptions ({load.kind}), {load.publications_per_s:,.0f} publications/s, "
            f"{load.matches:,.0f} matches each",
        ),
        ("hosts", f"{found.hosts:,} of {executors:,} executors, {found.match_slices:,} match slices"),
        ("cores busy", f"access {found.access_cores:.1f}, match {found.match_cores:.1f}, exit {found.exit_cores:.1f}"),
    ]
    if found.is_feasible:
        lines += [
            ("batch", f"{found.batch_publications:,.0f} publications, every {found.batch_s:.2f} s"),
            ("its tasks", f"{found.access_tasks} access, {found.hosts} match, {found.exit_tasks} exit"),
            ("delay", f"{found.delay_s:.2f} s"),
            ("memory", f"{_bytes(found.executor_bytes)} an executor"),
        ]
    lines += [
        ("log", f"{_bytes(found.log_bytes_per_s)}/s"),
        ("to match tasks", f"{_bytes(found.broadcast_bytes_per_s)}/s"),
        ("shuffle", f"{_bytes(found.shuffle_bytes_per_s)}/s"),
        ("results", f"{_bytes(found.result_bytes_per_s)}/s"),
        ("used", ", ".join(f"{use.name} {use.share:.0%}" for use in found.resources)),
        ("exhausted first", f"{scarcest.name}, at {found.headroom:.2g} × this load"),
    ]
    text = "\n".join(f"{name:<17}{value}" for name, value in lines)
    return text if found.is_feasible else f"{text}\n{_advice(found)}"


def _advice(found: SizingEstimate) -> str:
    if found.hosts_needed is None:
        return "too much: no number of hosts can keep up, because every host reads every publication"
    if found.hosts_needed > found.hosts:
        return f"too much for {found.hosts:,} hosts; {found.hosts_needed:,} would suffice"
    return f"too much for {found.resources[0].name}"


def _bytes(count: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"

"""`lavant spark`: check a cluster before a stream needs it, and ship Lavant to executors without an installation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import EXIT_FAILED, AsJson, counted, print_table, report
from lavant.cli.planning.size import size
from lavant.core.errors import InvalidValue
from lavant.core.files import is_uri

if TYPE_CHECKING:
    from lavant.pipeline.cluster.preflight import ExecutorReport, PlaceSeen

spark = typer.Typer(help="Spark clusters: check one, ship Lavant to it, size it.", no_args_is_help=True)

Master = Annotated[str, typer.Option(help="Spark master: local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT")]
DriverHost = Annotated[
    str | None,
    typer.Option(help="address at which executors reach this machine; by default the one used towards the master"),
]
Archive = Annotated[
    Path | None, typer.Option(metavar="FILE", help="archive of `lavant spark pack`, for executors without Lavant")
]
Conf = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="setting of Spark, such as spark.executor.memory=2g; repeatable"),
]


def settings_in(conf: list[str] | None) -> dict[str, str]:
    """
    >>> settings_in(["spark.executor.memory=2g"])
    {'spark.executor.memory': '2g'}
    """
    settings = {}
    for each in conf or ():
        key, equals, value = each.partition("=")
        if not equals:
            raise InvalidValue(f"--conf takes KEY=VALUE, got {each!r}; write --conf spark.executor.memory=2g")
        settings[key.strip()] = value
    return settings


@spark.command("check")
def check(
    places: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PLACE]…", help="paths and URIs that the stream will use: log, subscriptions, output"),
    ] = None,
    master: Master = "local[*]",
    driver_host: DriverHost = None,
    archive: Archive = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Ask each executor of a cluster what it has and what it reaches. Exit code 1 if something does not fit."""
    import msgspec  # noqa: PLC0415

    from lavant.pipeline.cluster.preflight import check_here, survey  # noqa: PLC0415
    from lavant.pipeline.internals.failures import failures_reported  # noqa: PLC0415
    from lavant.pipeline.session import spark_session  # noqa: PLC0415

    check_here(places or [])  # before Spark takes its seconds to start
    with failures_reported():
        session = spark_session(
            master, "lavant spark check", driver_host=driver_host, archive=archive, **settings_in(conf)
        )
        try:
            reports = survey(session, places or [])
        finally:
            session.stop()
    problems = [problem for report in reports for problem in report.problems]
    if as_json:
        print(msgspec.json.encode(reports).decode())
    elif not reports:
        print(f"{master}: everything runs on this machine")
    else:
        _print_reports(reports)
        for problem in problems:
            print(f"problem: {problem}")
        print(f"{counted(len(reports), 'executor')}, {counted(len(problems), 'problem')}")
    raise typer.Exit(EXIT_FAILED if problems else 0)


def _print_reports(reports: list[ExecutorReport]) -> None:
    places = next((each.places for each in reports if each.places), [])
    rows = []
    for each in reports:
        found = each.installation
        versions = ["?"] * len(_VERSIONS) if found is None else [str(getattr(found, name)) for name in _VERSIONS]
        seen = [_seen(place) for place in each.places] or ["?"] * len(places)
        rows.append(
            [each.id, each.address if found is None else found.host, *versions, f"{each.clock_s:+.1f} s", *seen]
        )
    columns = ["executor", "machine", "Lavant", "Python", "PySpark", "PyArrow", "NumPy", "clock"]
    print_table([*columns, *(each.place for each in places)], rows, numbers=("executor", "clock"))


_VERSIONS = ("lavant", "python", "pyspark", "pyarrow", "numpy")


def _seen(place: PlaceSeen) -> str:
    if place.problem is not None or place.read_ms is None:
        return "no" if is_uri(place.place) else "no (travels)"
    return f"{place.read_bytes / 1024:,.0f} KiB in {place.read_ms:.0f} ms"


@spark.command("pack")
def pack(
    archive: Annotated[Path, typer.Argument(metavar="FILE.tar.gz", help="archive to write")],
    as_json: AsJson = False,
) -> None:
    """Write an archive of Python, Lavant and its dependencies, for executors that have none of them.

    Executors need Linux on the same kind of processor, with a C library at least as new as this machine's.
    """
    from msgspec.structs import asdict  # noqa: PLC0415

    from lavant.broker.warmup import BROKER_KERNELS  # noqa: PLC0415
    from lavant.cli.reports.kernels import shown_progress  # noqa: PLC0415
    from lavant.core.kernels.warmup import warm_up  # noqa: PLC0415
    from lavant.pipeline.packing import check_target  # noqa: PLC0415
    from lavant.pipeline.packing import pack as write  # noqa: PLC0415
    from lavant.pipeline.warmup import PIPELINE_KERNELS  # noqa: PLC0415

    check_target(archive)  # before kernels are compiled
    started_s = time.monotonic()
    with shown_progress() as show:
        warm_up([*BROKER_KERNELS, PIPELINE_KERNELS], show)
    packed = write(archive)
    size = archive.stat().st_size / (1 << 20)
    text = (
        f"{archive}: Lavant {packed.lavant} and Python {packed.python} for {packed.machine}, {size:,.0f} MiB, "
        f"in {time.monotonic() - started_s:.0f} s"
    )
    report(text, as_json=as_json, archive=str(archive), **asdict(packed))


spark.command()(size)

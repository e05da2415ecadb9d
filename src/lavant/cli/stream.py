"""`lavant stream`: match files or topics of publications against subscriptions on Spark."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.cli.common import EXIT_FAILED, AsJson, counted, progress_console, report
from lavant.cli.spark import Archive, Conf, DriverHost, Master, settings_in
from lavant.core.files import is_uri

if TYPE_CHECKING:
    from lavant.pipeline.stream.driver import StreamResult


class FilterScheme(StrEnum):
    plain = "plain"
    encrypted = "encrypted"


def stream(
    subscriptions: Annotated[
        str, typer.Option(help="path or URI of JSON lines or Parquet with columns id and filter, or of a slice store")
    ],
    input: Annotated[
        str,
        typer.Option(
            help="path or URI of JSON lines or Parquet, a directory of them, or a publication log; or kafka://HOST/TOPIC"
        ),
    ],
    output: Annotated[str, typer.Option(help="path or URI of a directory for the results, or kafka://HOST/TOPIC")],
    scheme: Annotated[FilterScheme, typer.Option(help="whether the files are plain or encrypted")] = FilterScheme.plain,
    master: Master = "local[*]",
    slices: Annotated[int, typer.Option(min=1, help="number of slices of the subscriptions")] = 16,
    hosts: Annotated[int | None, typer.Option(min=1, help="match tasks per batch; by default one per core")] = None,
    driver_host: DriverHost = None,
    driver_memory: Annotated[str, typer.Option(help="Java heap of the driver")] = "2g",
    archive: Archive = None,
    conf: Conf = None,
    work: Annotated[
        Path | None, typer.Option(help="Kafka: directory that keeps how far the stream is, and the slices")
    ] = None,
    kafka_option: Annotated[
        list[str] | None,
        typer.Option(help="Kafka: key=value for its clients or Spark's source; repeatable; =@FILE reads the value"),
    ] = None,
    rejected_topic: Annotated[
        str | None, typer.Option(help="Kafka: topic for refused publications; by default the output")
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Kafka: stop at the topic's present end")
    ] = False,
    as_json: AsJson = False,
    engine: Annotated[FilterScheme | None, typer.Option(hidden=True, help="former name of --scheme")] = None,
) -> None:
    """Match publications against subscriptions on Spark. Run again after a failure, the command resumes."""
    import msgspec  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    from lavant.broker.storage.objects import open_storage  # noqa: PLC0415
    from lavant.broker.storage.objects.files import StoredFile  # noqa: PLC0415
    from lavant.cli.kafka_stream import KafkaArguments, run_kafka_stream  # noqa: PLC0415
    from lavant.pipeline.cluster.preflight import preflight  # noqa: PLC0415
    from lavant.pipeline.internals.failures import failures_reported  # noqa: PLC0415
    from lavant.pipeline.session import spark_session  # noqa: PLC0415
    from lavant.pipeline.stream.driver import stream as run  # noqa: PLC0415
    from lavant.pipeline.stream.preparation import check_places  # noqa: PLC0415

    scheme = scheme if engine is None else engine
    settings = {"spark.driver.memory": driver_memory, **settings_in(conf)}
    topics = KafkaArguments(input, output, work, kafka_option or [], rejected_topic, available_now)
    places = (subscriptions, input, output)
    read = places[:1] if topics.are_given else places

    def session(**more: str) -> Any:
        spark = spark_session(master, driver_host=driver_host, archive=archive, **settings, **more)
        try:
            # Only the driver reads files; executors read and write stores, logs and the output.
            preflight(spark, *(each for each in read if is_uri(each) and not StoredFile.at(each).exists()))
        except BaseException:
            spark.stop()
            raise
        return spark

    if topics.are_given:
        with failures_reported():
            run_kafka_stream(
                topics,
                subscriptions=subscriptions,
                scheme=scheme.value,
                slices=slices,
                session=session,
                as_json=as_json,
            )
        return
    check_places(*places)  # before Spark takes its seconds to start
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        failures_reported(),
        Progress(*columns, console=progress_console(), transient=True) as bar,
    ):
        task = bar.add_task("starting Spark", total=None)
        spark = session()
        bar.update(task, description="publications")
        try:
            result = run(
                spark,
                subscriptions=subscriptions,
                publications=input,
                output=output,
                scheme=scheme.value,
                slices=slices,
                hosts=hosts,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        finally:
            spark.stop()
    if as_json:
        print(msgspec.json.encode(result).decode())
    else:
        show(result, rejected=open_storage(output).below("rejected.jsonl").uri)
    raise typer.Exit(EXIT_FAILED if result.matched_none else 0)


def show(result: StreamResult, *, rejected: str) -> None:
    """What came of it; `rejected` is the file with the reasons."""
    from lavant.pipeline.stream.sinks import reasons_text  # noqa: PLC0415

    matched = f"{counted(result.publications, 'publication')} against {counted(result.subscriptions, 'subscription')}"
    batches = f"{result.batches} batch{'' if result.batches == 1 else 'es'}"
    report(f"{matched} in {result.seconds:.1f} s ({batches})", as_json=False)
    report(f"notifications: {result.notifications}", as_json=False)
    if result.rejected:
        print(f"{counted(result.rejected, 'publication')} refused, {reasons_text(result.reasons)}")
        print(f"reasons: {rejected}, or column rejected of the notifications")
    if result.matched_none:
        print("lavant: every publication of the log was refused, so nothing was matched", file=sys.stderr)

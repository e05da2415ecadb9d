"""`lavant stream` from one topic of Kafka to another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from lavant.cli.common import counted, progress_console, report
from lavant.core.errors import InvalidValue


class KafkaArguments(NamedTuple):
    """The arguments of `lavant stream` for topics."""

    input: str
    output: str
    work: Path | None
    options: list[str]
    rejected_topic: str | None
    available_now: bool

    @property
    def are_given(self) -> bool:
        """Whether this is a stream between topics; raises if the arguments fit neither kind of stream."""
        sides = [each.lower().startswith("kafka:") for each in (self.input, self.output)]
        if all(sides):
            return True
        if any(sides):
            raise InvalidValue(
                "Kafka is only one side of this stream, and both must be: --input kafka://HOST:9092/TOPIC --output "
                "kafka://HOST:9092/TOPIC; to match a topic into files, write it to a log with lavant_log first"
            )
        if self.options or self.rejected_topic is not None or self.available_now or self.work is not None:
            raise InvalidValue(
                "--work, --kafka-option, --rejected-topic and --available-now are for streams of Kafka; "
                "leave them out, or give kafka://HOST:9092/TOPIC as input and output"
            )
        return False


def run_kafka_stream(
    arguments: KafkaArguments,
    *,
    subscriptions: str,
    scheme: str,
    slices: int,
    session: Callable[..., Any],
    as_json: bool,
) -> None:
    """Until it is interrupted, or up to the topic's present end. `session` starts Spark with further settings."""
    from msgspec.structs import asdict  # noqa: PLC0415

    from lavant.pipeline.sources.kafka.connector import connector_settings  # noqa: PLC0415
    from lavant.pipeline.sources.kafka.runner import stream_topics  # noqa: PLC0415
    from lavant.pipeline.sources.kafka.topics import KafkaTopic, check_topics, parse_options  # noqa: PLC0415
    from lavant.pipeline.stream.preparation import check_directory, check_subscriptions  # noqa: PLC0415

    input, output = KafkaTopic.parse(arguments.input), KafkaTopic.parse(arguments.output)
    options = parse_options(arguments.options)
    if arguments.work is None:
        raise InvalidValue("a stream of Kafka needs --work DIRECTORY, which keeps how far it is")
    check_subscriptions(subscriptions)
    check_directory(arguments.work)
    check_topics(input, output, arguments.rejected_topic, options)
    with progress_console().status("starting Spark") as status:
        spark = session(**connector_settings())
        status.update(f"{input.name}: 0 records")
        try:
            result = stream_topics(
                spark,
                subscriptions=subscriptions,
                input=input,
                output=output,
                work=arguments.work,
                scheme=scheme,
                slices=slices,
                options=options,
                rejected_topic=arguments.rejected_topic,
                available_now=arguments.available_now,
                progress=lambda records: status.update(f"{input.name}: {counted(records, 'record')}"),
            )
        finally:
            spark.stop()
    matched = f"{counted(result.records, 'record')} against {counted(result.subscriptions, 'subscription')}"
    report(
        f"{matched} in {result.seconds:.1f} s ({result.batches} batch{'' if result.batches == 1 else 'es'})\n"
        f"{counted(result.notifications, 'notification')} in {result.output}, {result.rejected} of them refusals",
        as_json=as_json,
        **asdict(result),
    )

"""An archive of Spark's classes, from which Java loads them in half the time: a session starts in 6 s instead of 11.

    python -m tests.spark_classes

It runs a table and a stream on Spark; Java writes the classes that it has loaded into `spark-classes.jsa` of this
Python environment (class data sharing). A Java with another version or other jars ignores the file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from tests.integration.workload import append, filters, rows

from lavant.broker.slices import SliceStore
from lavant.pipeline.session import spark_session
from lavant.pipeline.stream.driver import start
from lavant.pipeline.tables import match

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Processes that cannot use the archive would say so on their standard output, which others read."""


def java_options() -> str:
    """For `JAVA_TOOL_OPTIONS`: compile quickly, as no Java of the tests lives long, and use the archive."""
    return "-XX:TieredStopAtLevel=1" + (f" -XX:SharedArchiveFile={ARCHIVE} {QUIET}" if ARCHIVE.exists() else "")


def make_archive() -> None:
    """Write the archive, unless it is there."""
    if ARCHIVE.exists():
        return
    unfinished = ARCHIVE.with_suffix(".new")
    os.environ["JAVA_TOOL_OPTIONS"] = f"{java_options()} {QUIET} -XX:ArchiveClassesAtExit={unfinished}"
    with tempfile.TemporaryDirectory() as directory:
        run_spark(Path(directory))
    java = SparkContext._gateway.proc  # type: ignore[union-attr]
    java.stdin.close()
    java.wait()
    unfinished.rename(ARCHIVE)


def run_spark(directory: Path) -> None:
    """A table and a stream, so that the classes of both are loaded."""
    spark = spark_session("local[2]")
    SliceStore.create(directory / "subscriptions", slices=2).add([*range(10)], filters(10))
    append(directory / "log", rows(100))
    events = spark.createDataFrame([("IBM", 3)], "symbol string, volume int").repartition(2)
    match(events, directory / "subscriptions", groups=2).collect()
    log, subscriptions, output = (directory / name for name in ("log", "subscriptions", "output"))
    start(spark, log=log, subscriptions=subscriptions, output=output, hosts=2, available_now=True).wait()
    spark.stop()


if __name__ == "__main__":
    make_archive()

"""Draws the stages of a stream as Spark's web interface shows them: `python -m tests.bench.stages SVG_FILE`.

Names, tasks, bytes and times are those that Spark's REST interface tells of a real run.
"""

from __future__ import annotations

import argparse
import tempfile
import urllib.request
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from pyspark.sql import SparkSession

from lavant.broker.slices import SliceStore
from lavant.broker.storage.log import LogWriter
from lavant.pipeline.session import spark_session
from lavant.pipeline.stream.driver import start
from lavant.simulation.workloads.stock import StockWorkload

SUBSCRIPTIONS = 100_000
BATCHES, BATCH_ROWS = 40, 4000
HOSTS = 2
SHOWN = 3
"""Batches in the picture: the last but one, and those before."""

COLUMNS = (("Stage", 20), ("Description", 80), ("Tasks", 230), ("Duration", 300), ("Shuffle read", 390))
WRITE_X, TIMELINE_X, WIDTH, ROW, TOP = 500, 630, 960, 30, 92


class Stage(NamedTuple):
    id: int
    name: str
    operator: str
    tasks: int
    began_ms: float
    ended_ms: float
    shuffle_read: int
    shuffle_write: int


def run(directory: Path) -> list[Stage]:
    """The stages of a stream over a log, once it is warm."""
    workload = StockWorkload(subscriptions=SUBSCRIPTIONS)
    store = SliceStore.create(directory / "subscriptions", slices=16)
    store.add(np.arange(SUBSCRIPTIONS), workload.filters())
    with LogWriter(directory / "log", durable=False) as log:
        for number in range(BATCHES):
            log.append(workload.publications(BATCH_ROWS, stream=number % 4).records)
    spark = spark_session(f"local[{HOSTS}]", "stages", spark_ui_enabled="true", spark_ui_port="0")
    try:
        running = start(
            spark,
            log=directory / "log",
            subscriptions=directory / "subscriptions",
            output=directory / "out",
            hosts=HOSTS,
            available_now=True,
            options={"rowsMax": str(BATCH_ROWS)},
        )
        running.wait()
        return completed_stages(spark)
    finally:
        spark.stop()


def completed_stages(spark: SparkSession) -> list[Stage]:
    """Lavant's own, in order, of a session with a web interface."""
    context = spark.sparkContext
    url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages?status=complete"
    with urllib.request.urlopen(url) as answer:
        told = msgspec.json.decode(answer.read())
    return sorted((_stage(each) for each in told if each["name"].startswith("lavant ")), key=lambda s: s.began_ms)


def _stage(told: dict[str, Any]) -> Stage:
    return Stage(
        told["stageId"],
        told["name"],
        told["name"].split()[1],
        told["numTasks"],
        _ms(told["submissionTime"]),
        _ms(told["completionTime"]),
        told["shuffleReadBytes"],
        told["shuffleWriteBytes"],
    )


def _ms(time: str) -> float:
    return datetime.strptime(time.replace("GMT", "+0000"), "%Y-%m-%dT%H:%M:%S.%f%z").timestamp() * 1000


def last_batches(stages: list[Stage]) -> list[Stage]:
    numbers = sorted({int(stage.name.split()[2]) for stage in stages})[-SHOWN - 1 : -1]
    return [stage for stage in stages if int(stage.name.split()[2]) in numbers]


def svg(stages: list[Stage]) -> str:
    """A table like that of completed stages, and a bar for each on a common axis of time."""
    first, last = min(stage.began_ms for stage in stages), max(stage.ended_ms for stage in stages)
    scale = (WIDTH - 20 - TIMELINE_X) / (last - first)
    height = TOP + ROW * len(stages) + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
        '     role="img" aria-labelledby="title desc"',
        '     font-family="system-ui, -apple-system, \'Segoe UI\', Roboto, sans-serif" font-size="14">',
        '  <title id="title">Stages of a stream in Spark</title>',
        f'  <desc id="desc">Completed stages of {SHOWN} micro-batches: access, match and exit of each, with tasks, ',
        "    durations and shuffle bytes, and the times at which they ran. The access of a batch runs beside match and",
        "    exit of the batch before.</desc>",
        _STYLE,
        f'  <text x="20" y="30" class="title">Completed stages ({len(stages)} of a running stream)</text>',
        f'  <text x="20" y="52" class="small">{HOSTS} hosts, {SUBSCRIPTIONS:,} subscriptions, '
        f"{BATCH_ROWS:,} publications a batch; from /api/v1/applications/…/stages</text>",
    ]
    for text, x in (*COLUMNS, ("Shuffle write", WRITE_X), (f"{last - first:,.0f} ms", TIMELINE_X)):
        lines.append(f'  <text x="{x}" y="{TOP - 14}" class="head">{text}</text>')
    for row, stage in enumerate(stages):
        lines += _row(stage, TOP + row * ROW, TIMELINE_X + (stage.began_ms - first) * scale, scale, row)
    return "\n".join([*lines, "</svg>", ""])


def _row(stage: Stage, y: float, x: float, scale: float, row: int) -> list[str]:
    duration = stage.ended_ms - stage.began_ms
    cells = (
        str(stage.id),
        escape(stage.name),
        f"{stage.tasks}/{stage.tasks}",
        f"{duration:,.0f} ms",
        _bytes(stage.shuffle_read),
        _bytes(stage.shuffle_write),
    )
    places = (*(place for _, place in COLUMNS), WRITE_X)
    shade = [f'  <rect x="12" y="{y}" width="{WIDTH - 24}" height="{ROW}" class="row"/>'] if row % 2 == 0 else []
    texts = [
        f'  <text x="{place}" y="{y + 20}">{text}</text>' for place, text in zip(places, cells, strict=True) if text
    ]
    width = max(2.0, duration * scale)
    bar = f'  <rect x="{x:.1f}" y="{y + 8}" width="{width:.1f}" height="14" class="{stage.operator}"/>'
    return [*shade, *texts, bar]


def _bytes(count: int) -> str:
    return "" if not count else f"{count / 1024:,.1f} KiB" if count < 1 << 20 else f"{count / (1 << 20):,.1f} MiB"


_STYLE = """  <style>
    text { fill: #1c2733 }
    .title { font-size: 17px; font-weight: 600 }
    .head { font-weight: 600 }
    .small { font-size: 12.5px; fill: #4b5a69 }
    .row { fill: #f0f4f8 }
    .access { fill: #2f5f98 } .match { fill: #3f8f5f } .exit { fill: #a8681a }
    @media (prefers-color-scheme: dark) {
      text { fill: #e8edf2 }
      .small { fill: #b0bcc8 }
      .row { fill: #1a2735 }
      .access { fill: #7fb0e8 } .match { fill: #7fd0a0 } .exit { fill: #e5ad5f }
    }
  </style>"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    with tempfile.TemporaryDirectory(prefix="lavant-stages-") as directory:
        file.write_text(svg(last_batches(run(Path(directory)))))


if __name__ == "__main__":
    main()

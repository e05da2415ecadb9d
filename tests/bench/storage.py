"""The log stream by where its files are: the same publications on local paths, on S3, and with no storage in common.

A standalone cluster of two executors, and moto's S3 server in a process of its own, all on this machine. The streams
take turns, and the first turn warms up. *Paths*: executors open the driver's files.
*S3*: log, subscriptions and results are objects. *None*: everything travels through Spark, and the driver writes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from tests.bench.pipeline import SUBSCRIPTIONS, Load, encrypted_load, stock_load
from tests.bench.tables import processor_s
from tests.integration.object_store import CREDENTIALS, object_store
from tests.integration.workload import below

from lavant.broker.slices import SliceStore
from lavant.broker.storage.log import LogWriter
from lavant.pipeline.cluster.standalone import standalone_cluster
from lavant.pipeline.session import spark_session
from lavant.pipeline.stream.driver import start
from lavant.pipeline.stream.sinks import read_manifests

BATCHES, TURNS, HOSTS, SLICES = 9, 2, 2, 8
ROWS = {"stock, 500 symbols": 2000, "encrypted, d = 4, 1 %": 2000}
"""Publications of a batch."""
PATHS, S3, NONE = "paths", "S3", "none"
COLUMNS = ("workload", "storage", "a batch's ms", "of paths", "processor ms of a batch", "of paths")


def measure_storage() -> list[list[str]]:
    os.environ.update(CREDENTIALS)
    with tempfile.TemporaryDirectory(prefix="lavant-bench-") as directory:
        home = Path(directory)
        with object_store(home) as objects, standalone_cluster(home / "cluster", workers=HOSTS, cores=1) as cluster:
            spark = spark_session(cluster.url, "lavant-bench-storage", spark_executor_cores="1")
            try:
                lines: list[list[str]] = []
                for number, load in enumerate((stock_load(), encrypted_load())):
                    name = f"load-{number}"
                    places = {PATHS: str(home / name), S3: objects.uri(name), NONE: str(home / name)}
                    lines += measure_load(spark, load, places)
                return lines
            finally:
                spark.stop()


def measure_load(spark: SparkSession, load: Load, places: dict[str, str]) -> list[list[str]]:
    for place in set(places.values()):
        prepare(load, place)
    best: dict[str, tuple[float, float]] = {}
    for turn in range(TURNS):
        for storage, place in places.items():
            taken = batch_ms(spark, load, storage, place, f"out-{storage}-{turn}")
            if turn:
                best[storage] = min(best.get(storage, taken), taken)
    wall, processor = best[PATHS]
    return [
        [load.name, storage, f"{a:,.0f}", f"{a / wall:.2f}", f"{b:,.0f}", f"{b / processor:.2f}"]
        for storage, (a, b) in best.items()
    ]


def prepare(load: Load, place: str) -> None:
    """The subscriptions and the log."""
    store = SliceStore.create(below(place, "subscriptions"), scheme=load.scheme, slices=SLICES)
    store.add(np.arange(SUBSCRIPTIONS), load.filters)
    with LogWriter(below(place, "log"), durable=False) as log:
        for number in range(BATCHES):
            log.append(load.records(load.batch(ROWS[load.name], number % 4)))


def batch_ms(spark: Any, load: Load, storage: str, place: str, output: str) -> tuple[float, float]:
    """Time and processor time from one batch's manifest to the next; the first third of the batches opens slices."""
    used = processor_s()
    stream = start(
        spark,
        log=below(place, "log"),
        subscriptions=below(place, "subscriptions"),
        output=below(place, output),
        hosts=HOSTS,
        available_now=True,
        shared=storage == PATHS,
        options={"rowsMax": str(ROWS[load.name])},
    )
    stream.wait()
    used = processor_s() - used
    committed = [each.time_ms for each in read_manifests(below(below(place, output), "notifications"))]
    counted = committed[BATCHES // 3 :]
    return (counted[-1] - counted[0]) / (len(counted) - 1), used * 1000 / len(committed)

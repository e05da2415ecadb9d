"""A driver in a process of its own, so that a test can kill it: streams a log on a cluster until it is told to stop.

python -m tests.integration.driver MASTER DIRECTORY ROWS_MAX [elastic] [sockets] [at PLACE]

Log, subscriptions and output are at PLACE, a URI, or in DIRECTORY, where the file `stop` ends it. With `sockets` Spark
and its Python workers talk over Unix sockets. ROWS_MAX is a number, or `follow` for batches that follow the log.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tests.integration.workload import below

from lavant.control.placement import HostCapacity, PlacementConfig, Rules
from lavant.pipeline.cluster.manager import ClusterManager
from lavant.pipeline.session import spark_session
from lavant.pipeline.stream.driver import start

EXECUTORS = {"spark_executor_cores": "1", "spark_executor_memory": "600m", "spark_cores_max": "2"}
QUICK = Rules(window_ms=2000, grace_ms=1000)
SMALL = HostCapacity(cpu=0.005)
"""A host counts as full at half a percent of a core, which it gets on a busy machine too."""


def main(master: str, directory: Path, rows_max: str, place: str, *, elastic: bool, sockets: bool) -> None:
    settings = {**EXECUTORS, "spark.task.maxFailures": "8"}
    settings["spark.python.unix.domain.socket.enabled"] = str(sockets).lower()
    spark = spark_session(master, **settings)
    ways: dict[str, Any] = {}
    if rows_max != "follow":  # all three stages, however small the test's batches are
        ways = {"small_rows_max": 0, "options": {"rowsMax": rows_max}}
    manager = None
    if elastic:
        config = PlacementConfig(policy="threshold", rules=QUICK, capacity=SMALL, hosts_min=1, hosts_max=2)
        manager = ClusterManager(
            spark, subscriptions=directory / "subscriptions", directory=directory / "control", config=config
        )
    stream = start(
        spark,
        log=below(place, "log"),
        subscriptions=below(place, "subscriptions"),
        output=place,
        hosts=2,
        manager=manager,
        **ways,
    )
    while stream.is_active and not (directory / "stop").exists():
        time.sleep(0.2)
        if manager is not None:
            plan = manager.tick(int(time.time() * 1000))
            if plan is not None:
                print(f"{len(manager.placement.hosts)} {plan.decision}", flush=True)
    try:
        if stream.is_active:
            stream.stop()
        else:
            stream.wait()
    finally:
        spark.stop()


if __name__ == "__main__":
    more = sys.argv[4:]
    at = more[more.index("at") + 1] if "at" in more else sys.argv[2]
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], at, elastic="elastic" in more, sockets="sockets" in more)

"""`python -m lavant.pipeline.engine`: started by a service, never by hand.

Its order is the first line of its standard input. When that ends, the service has ended, and so does this process: at
once, because it has no state to save. Java and its executors end with this process.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from lavant.broker.protocol.match_protocol import MatchRequest
from lavant.control.placement import PlacementConfig
from lavant.core.errors import ConnectionLost, FailedStream
from lavant.pipeline.cluster.preflight import preflight
from lavant.pipeline.engine.link import ServiceLink
from lavant.pipeline.engine.placement import ElasticPlacement, EnginePlacement, EvenPlacement
from lavant.pipeline.engine.rounds import Rounds
from lavant.pipeline.internals.failures import reported, root_cause
from lavant.pipeline.internals.java import java_process
from lavant.pipeline.operators.travel import SliceTravel
from lavant.pipeline.packing import check_archive
from lavant.pipeline.session import check_java, check_master, check_settings, spark_session

FAILURES_MAX = 3
"""Consecutive failed rounds; after these, a new process may do better."""
RETRY_S = 1.0
"""Before a failed round is repeated."""
_failing = threading.Lock()
_logger = logging.getLogger(__name__)


def main() -> None:
    logging.basicConfig(format="lavant: %(message)s", level=logging.WARNING)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=MatchRequest)
    threading.Thread(target=_end_with_the_service, name="service", daemon=True).start()
    try:
        check_java()
        check_master(order.master)
        check_settings(order.conf)
        if order.archive is not None:
            check_archive(Path(order.archive), order.master)
        link = ServiceLink(order.port, order.secret)
        serve(order, link)
    except BaseException as error:
        # Python would end threads that read and Java's sockets in no order, and abort.
        _fail(error)


def serve(order: MatchRequest, link: ServiceLink) -> None:
    """Runs for as long as the service does."""
    directory = Path(order.directory)
    is_cluster = order.master.startswith("spark://")
    executors = {"spark_executor_cores": "1", "spark_cores_max": str(order.hosts_max), "spark_task_maxFailures": "8"}
    spark = spark_session(
        order.master,
        "lavant serve",
        driver_host=order.driver_host,
        archive=order.archive,
        **{**(executors if is_cluster else {}), **order.conf},
    )
    java = java_process(spark)
    threading.Thread(target=_fail_with_java, args=(java,), name="java", daemon=True).start()
    preflight(spark)
    travel = SliceTravel(spark.sparkContext, shared=not is_cluster)
    rounds = Rounds(spark.sparkContext, travel)
    placement: EnginePlacement
    if is_cluster:
        placement = ElasticPlacement(
            spark,
            slices=order.slices,
            directory=directory / "control",
            config=PlacementConfig(hosts_max=order.hosts_max),
            rounds=rounds,
            travel=travel,
            on_failed=_fail,
        )
        rounds.probes = placement.probes
    else:
        placement = EvenPlacement(order.slices, min(order.hosts_max, spark.sparkContext.defaultParallelism))
    failures, fault = 0, ""
    while True:
        ranges = link.next(len(placement.assignment().hosts), fault)
        try:
            for found in rounds.match(ranges, placement.assignment()) if ranges else ():
                link.report(found)  # refused results come again
        except ConnectionLost:
            raise
        except Exception as error:  # an executor was lost, or a file cannot be read
            failures, fault = failures + 1, root_cause(error)
            if java.poll() is not None:
                raise _java_ended(java) from error
            if failures == FAILURES_MAX:
                raise
            _logger.warning("a round failed: %s", fault)
            time.sleep(RETRY_S)
        else:
            failures, fault = (0, "") if ranges else (failures, fault)


def _end_with_the_service() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _fail_with_java(process: subprocess.Popen[bytes]) -> None:
    """End the process when Spark's Java has ended; calls to it would fail one by one, or not at all."""
    process.wait()
    _fail(_java_ended(process))


def _java_ended(process: subprocess.Popen[bytes]) -> FailedStream:
    code = process.wait()
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return FailedStream(f"Spark's Java process ended ({how})")


def _fail(error: BaseException) -> None:
    """The service repeats the line."""
    with _failing:  # never released: one failure is reported, the others are its consequences
        print(f"lavant: {reported(error)}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()

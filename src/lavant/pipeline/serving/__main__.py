"""`python -m lavant.pipeline.serving`: started by a service, never by hand.

Its order is the first line of its standard input. When that ends, the service has, and so does this process: at once,
because nothing here is worth saving. Java and its executors go when this process is gone.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path

import msgspec

from lavant.broker.subscriptions.handover import Order
from lavant.control.placement import PlacementConfig
from lavant.core.errors import LavantError
from lavant.pipeline.serving.link import ServiceLink
from lavant.pipeline.serving.placing import ElasticPlacing, EvenPlacing, Placing
from lavant.pipeline.serving.rounds import Rounds
from lavant.pipeline.session import check_java, check_master, spark_session

FAILURES_MAX = 3
"""Rounds that fail one after the other; then a new process may do better."""
_logger = logging.getLogger(__name__)


def main() -> None:
    logging.basicConfig(format="lavant: %(message)s", level=logging.WARNING)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    threading.Thread(target=_end_with_the_service, name="service", daemon=True).start()
    try:
        check_java()
        check_master(order.master)
        link = ServiceLink(order.port, order.secret)
        serve(order, link)
    except LavantError as error:
        _fail(error)


def serve(order: Order, link: ServiceLink) -> None:
    """For as long as the service does."""
    directory = Path(order.directory)
    is_cluster = order.master.startswith("spark://")
    executors = {"spark_executor_cores": "1", "spark_cores_max": str(order.hosts_max), "spark_task_maxFailures": "8"}
    spark = spark_session(order.master, "lavant serve", **(executors if is_cluster else {}))
    rounds = Rounds(spark.sparkContext, directory / "exchange")
    placing: Placing
    if is_cluster:
        placing = ElasticPlacing(
            spark,
            slices=order.slices,
            directory=directory / "control",
            config=PlacementConfig(hosts_max=order.hosts_max),
            rounds_done=lambda: rounds.done,
            on_failed=_fail,
        )
        rounds.probes = placing.probes
    else:
        placing = EvenPlacing(order.slices, min(order.hosts_max, spark.sparkContext.defaultParallelism))
    failures = 0
    while True:
        stretches = link.next(len(placing.assignment().hosts))
        placing.see(stretches)
        try:
            for found in rounds.match(stretches, placing.assignment()) if stretches else ():
                link.report(found)  # what is refused comes again
        except LavantError:
            raise
        except Exception:  # a job that failed: an executor was lost, or its files are behind
            failures += 1
            if failures == FAILURES_MAX:
                raise
            _logger.warning("a round failed", exc_info=True)
        else:
            failures = 0


def _end_with_the_service() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _fail(error: Exception) -> None:
    """One line, which the service repeats."""
    print(f"lavant: {error}", file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    main()

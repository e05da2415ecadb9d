"""`python -m lavant.pipeline.engine`: started by a service, never by hand.

Its order is the first line of its standard input. When that ends, the service has, and so does this process: at once,
because nothing here is worth saving. Java and its executors go when this process is gone.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from lavant.broker.protocol.match_protocol import MatchRequest
from lavant.control.placement import PlacementConfig
from lavant.core.errors import FailedStream, LavantError
from lavant.pipeline.engine.link import ServiceLink
from lavant.pipeline.engine.placement import ElasticPlacing, EvenPlacing, Placing
from lavant.pipeline.engine.rounds import Rounds
from lavant.pipeline.internals.failures import full_report, root_cause
from lavant.pipeline.session import check_java, check_master, spark_session

FAILURES_MAX = 3
"""Rounds that fail one after the other; then a new process may do better."""
_failing = threading.Lock()
_logger = logging.getLogger(__name__)


def main() -> None:
    logging.basicConfig(format="lavant: %(message)s", level=logging.WARNING)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=MatchRequest)
    threading.Thread(target=_end_with_the_service, name="service", daemon=True).start()
    try:
        check_java()
        check_master(order.master)
        link = ServiceLink(order.port, order.secret)
        serve(order, link)
    except BaseException as error:
        # Python would end threads that read and Java's sockets in no order, and abort.
        _fail(error)


def serve(order: MatchRequest, link: ServiceLink) -> None:
    """For as long as the service does."""
    directory = Path(order.directory)
    is_cluster = order.master.startswith("spark://")
    executors = {"spark_executor_cores": "1", "spark_cores_max": str(order.hosts_max), "spark_task_maxFailures": "8"}
    spark = spark_session(order.master, "lavant serve", **(executors if is_cluster else {}))
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    threading.Thread(target=_fail_with_java, args=(java,), name="java", daemon=True).start()
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
    failures, fault = 0, ""
    while True:
        stretches = link.next(len(placing.assignment().hosts), fault)
        placing.see(stretches)
        try:
            for found in rounds.match(stretches, placing.assignment()) if stretches else ():
                link.report(found)  # what is refused comes again
        except LavantError:
            raise
        except Exception as error:  # a job that failed: an executor was lost, or its files are behind
            failures, fault = failures + 1, root_cause(error)
            if java.poll() is not None:
                raise _java_ended(java) from error
            if failures == FAILURES_MAX:
                raise
            _logger.warning("a round failed: %s", fault)
        else:
            failures, fault = (0, "") if stretches else (failures, fault)


def _end_with_the_service() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _fail_with_java(process: subprocess.Popen[bytes]) -> None:
    """When Spark's Java is gone there is nothing left to do here; calls to it would fail one by one, or not at all."""
    process.wait()
    _fail(_java_ended(process))


def _java_ended(process: subprocess.Popen[bytes]) -> FailedStream:
    code = process.wait()
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return FailedStream(f"Spark's Java process ended ({how})")


def _fail(error: BaseException) -> None:
    """One line at the end, which the service repeats; before it, for what was not foreseen, all that is known."""
    with _failing:  # never given back: one failure is told, and the others are its consequences
        is_foreseen = isinstance(error, LavantError)
        if not is_foreseen:
            print(full_report(error), file=sys.stderr)
        print(f"lavant: {error if is_foreseen else root_cause(error)}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()

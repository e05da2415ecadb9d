"""A trading day against encrypted subscriptions on a live cluster of one to four executors.

    python -m tests.bench.day [--trades FILE.parquet] [--minutes 4] [--peak 600] [--policy forecast]

Publications follow the day's curve, sped up; the manager adds and releases executors and moves slices meanwhile. In the
end every notification is compared with what the matcher alone says: none lost, none twice.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from lavant.broker.matching import EncryptedMatcher, Matches
from lavant.broker.slices import SliceStore
from lavant.broker.storage.log import LogWriter
from lavant.control.placement import HostCapacity, PlacementConfig, Rules
from lavant.pipeline.cluster.manager import ClusterManager
from lavant.pipeline.cluster.standalone import standalone_cluster
from lavant.pipeline.session import spark_session
from lavant.pipeline.stream.driver import start
from lavant.pipeline.stream.latency import NotifiedBatch, latencies_ms, notified_batches
from lavant.pipeline.stream.records import encrypted_records
from lavant.pipeline.stream.sinks import read_notifications
from lavant.simulation.placement.load_curves import Curve, replay, trading_day
from lavant.simulation.workloads.synthetic import EncryptedWorkload

SUBSCRIPTIONS = 100_000
SLICES = 16
TICK_S = 1.0
PIECES_A_SECOND = 10
DAY_S = 16 * 3600
RULES = Rules(window_ms=6000, grace_ms=6000)
"""The paper's rules in a fifth of its time, since the day passes much faster than there."""
CAPACITY = HostCapacity(cpu=0.30)
"""Four executors share two cores with a driver: a host counts as full at 30 % of a core."""


class Day:
    """Publishes along a curve, and remembers when."""

    def __init__(self, curve: Curve, log: LogWriter) -> None:
        counts = np.repeat(curve / PIECES_A_SECOND, PIECES_A_SECOND)
        self._counts = np.diff(np.floor(np.cumsum(counts)), prepend=0).astype(int)
        self.batch = EncryptedWorkload(subscriptions=1).publications(int(self._counts.sum()))
        self.published_s = np.zeros(len(self.batch))
        self._log = log
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        began = time.time()
        first = 0
        for number, count in enumerate(self._counts):
            time.sleep(max(0.0, began + number / PIECES_A_SECOND - time.time()))
            if count:
                self.published_s[first : first + count] = time.time()
                self._log.append(encrypted_records(EncryptedWorkload.part(self.batch, first, count)))
                first += count

    def published(self) -> int:
        return int(np.count_nonzero(self.published_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trades", type=Path, help="Parquet with a column ms; without it a day is made up")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--peak", type=float, default=600.0, help="publications a second")
    parser.add_argument("--policy", default="forecast")
    arguments = parser.parse_args()
    length_s = int(arguments.minutes * 60)
    if arguments.trades is None:
        curve = trading_day(seed=1, peak_per_s=arguments.peak, length_s=length_s)
    else:
        times_ms = pq.read_table(arguments.trades, columns=["ms"]).column("ms").to_numpy()
        curve = replay(times_ms, speedup=DAY_S // length_s, peak_per_s=arguments.peak)
    with tempfile.TemporaryDirectory(prefix="lavant-day-") as directory:
        live(Path(directory), curve, arguments.policy)


def live(home: Path, curve: Curve, policy: str) -> None:
    filters = EncryptedWorkload(subscriptions=SUBSCRIPTIONS).filters()
    store = SliceStore.create(home / "subscriptions", scheme="encrypted", slices=SLICES)
    store.add(np.arange(SUBSCRIPTIONS), filters)
    config = PlacementConfig(policy=policy, rules=RULES, capacity=CAPACITY, hosts_min=1, hosts_max=4)
    notifications = home / "notifications"
    with standalone_cluster(home / "cluster", workers=2, cores=2) as cluster, LogWriter(home / "log") as log:
        spark = spark_session(cluster.url, spark_executor_cores="1", spark_executor_memory="700m", spark_cores_max="4")
        manager = ClusterManager(spark, subscriptions=home / "subscriptions", directory=home / "control", config=config)
        stream = start(
            spark,
            log=home / "log",
            subscriptions=home / "subscriptions",
            output=home,
            manager=manager,
            options={"rowsMax": "4000"},
        )
        day = Day(curve, log)
        moves = follow(day, manager, notifications)
        stream.stop()
        spark.stop()
    report(day, manager, notified_batches(notifications), moves)
    compare(day, filters, notifications)


def follow(day: Day, manager: ClusterManager, notifications: Path) -> list[tuple[float, int]]:
    """Tick until the day is over, all is notified and one executor is left; when slices moved, and how many."""
    moves: list[tuple[float, int]] = []
    began = time.time()
    day.thread.start()
    print(f"{'time':>6} {'published':>10} {'executors':>9}  decision")
    shown = 0.0
    while True:
        time.sleep(TICK_S)
        plan = manager.tick(int(time.time() * 1000))
        now = time.time() - began
        if plan is not None and plan.changes:
            moves.append((time.time(), len(plan.moves)))
            line = f"{now:5.0f}s {day.published():>10,} {len(manager.placement.hosts):>9}"
            print(f"{line}  {plan.decision.action}: {plan.decision.reason}", flush=True)
        elif now - shown >= 10:
            shown = now
            print(f"{now:5.0f}s {day.published():>10,} {len(manager.placement.hosts):>9}", flush=True)
        if not day.thread.is_alive() and len(manager.placement.hosts) == 1:
            batches = notified_batches(notifications)
            if batches and max(int(b.offsets.max(initial=-1)) for b in batches) >= len(day.batch) - 50:
                return moves


def report(day: Day, manager: ClusterManager, batches: list[NotifiedBatch], moves: list[tuple[float, int]]) -> None:
    delays = latencies_ms(batches, day.published_s)
    gaps = np.diff([batch.time_s for batch in batches])
    at_moves = [
        (gaps[place - 1] if 0 < place <= len(gaps) else 0.0)
        for place in np.searchsorted([batch.time_s for batch in batches], [when for when, _ in moves])
    ]
    p50, p99 = np.quantile(delays, (0.5, 0.99))
    print(f"{len(day.batch):,} publications, {sum(b.notifications for b in batches):,} notifications")
    moved = sum(count for _, count in moves)
    print(f"{len(moves)} plans with {moved} moves of slices; delay p50 {p50:.0f}, p99 {p99:.0f} ms")
    print(
        f"between two batches: median {np.median(gaps):.2f} s; across a move: at most {max(at_moves, default=0):.2f} s"
    )


def compare(day: Day, filters: Any, notifications: Path) -> None:
    """Against the matcher alone, publication by publication."""
    matcher = EncryptedMatcher()
    matcher.add(np.arange(SUBSCRIPTIONS), filters)
    table = read_notifications(notifications).sort_by("key").combine_chunks()
    keys = table.column("key").to_numpy()
    assert len(np.unique(keys)) == len(keys), "a publication was notified twice"
    lists = table.column("subscriptions").chunk(0)
    found = Matches(lists.offsets.to_numpy().astype(np.int64), lists.values.to_numpy()).sorted()
    checked = 0
    for first in range(0, len(day.batch), 2000):
        matches = matcher.match(EncryptedWorkload.part(day.batch, first, 2000)).sorted()
        for number in range(len(matches.offsets) - 1):
            place = np.searchsorted(keys, first + number)
            there = place < len(keys) and keys[place] == first + number
            got = found.of(int(place)) if there else np.empty(0, np.uint32)
            assert np.array_equal(got, matches.of(number)), f"publication {first + number} reached others than it must"
            checked += 1
    print(f"all {checked:,} publications reached exactly whom they must")


if __name__ == "__main__":
    main()

"""Placement of slices in the engine: even in local mode, as the manager decides on a cluster."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
from pyspark.sql import SparkSession

from lavant.broker.protocol.match_protocol import OffsetRange
from lavant.control.placement import PlacementConfig
from lavant.pipeline.cluster.assignment import SliceAssignment
from lavant.pipeline.cluster.manager import ClusterManager, Stores

TICK_S = 2.0
_logger = logging.getLogger(__name__)


class EnginePlacement(Protocol):
    @property
    def probes(self) -> Path | None:
        """Where tasks write probes, if they are needed."""
        ...

    def assignment(self) -> SliceAssignment: ...

    def add_logs(self, ranges: list[OffsetRange]) -> None:
        """Logs may have been added."""
        ...


class EvenPlacement:
    """Always the same hosts."""

    probes = None

    def __init__(self, slices: int, hosts: int) -> None:
        self._assignment = SliceAssignment.even(slices, hosts)

    def assignment(self) -> SliceAssignment:
        return self._assignment

    def add_logs(self, ranges: list[OffsetRange]) -> None:
        pass


class ElasticPlacement:
    """Executors that follow the load; the manager decides and acts in a thread, concurrently with rounds."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        slices: int,
        directory: Path,
        config: PlacementConfig,
        rounds_done: Callable[[], int],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._stores = Stores(slices, [])
        self._manager = ClusterManager(spark, subscriptions=self._stores, directory=directory, config=config)
        self._manager.follow(rounds_done)
        self._on_failed = on_failed
        options = self._manager.stream_options()
        self._placement, self.probes = Path(options["placement"]), Path(options["probes"])
        threading.Thread(target=self._keep, name="manager", daemon=True).start()

    def assignment(self) -> SliceAssignment:
        return msgspec.json.decode(self._placement.read_bytes(), type=SliceAssignment)

    def add_logs(self, ranges: list[OffsetRange]) -> None:
        for range_ in ranges:
            path = Path(range_.subscriptions)
            if path not in self._stores.paths:
                self._stores.paths.append(path)

    def _keep(self) -> None:
        try:
            while True:
                time.sleep(TICK_S)
                plan = self._manager.tick(time.time_ns() // 1_000_000)
                if plan is not None and plan.changes:
                    _logger.warning("%d hosts: %s", len(self._manager.placement.hosts), plan.decision)
        except Exception as error:
            self._on_failed(error)

"""Placement of slices in the engine: even in local mode, as the manager decides on a cluster."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession

from lavant.control.placement import PlacementConfig
from lavant.pipeline.cluster.assignment import SliceAssignment
from lavant.pipeline.cluster.manager import ClusterManager, Stores
from lavant.pipeline.cluster.probes import ProbeBuffer
from lavant.pipeline.engine.rounds import Rounds
from lavant.pipeline.operators.travel import SliceTravel

TICK_S = 2.0
_logger = logging.getLogger(__name__)


class EnginePlacement(Protocol):
    @property
    def probes(self) -> ProbeBuffer | None:
        """For measurements, if they are needed."""
        ...

    def assignment(self) -> SliceAssignment: ...


class EvenPlacement:
    """Always the same hosts."""

    probes = None

    def __init__(self, slices: int, hosts: int) -> None:
        self._assignment = SliceAssignment.even(slices, hosts)

    def assignment(self) -> SliceAssignment:
        return self._assignment


class ElasticPlacement:
    """Executors that follow the load; the manager decides and acts in a thread, concurrently with rounds."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        slices: int,
        directory: Path,
        config: PlacementConfig,
        rounds: Rounds,
        travel: SliceTravel,
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._slices = slices
        stores = Stores(slices, rounds.stores)
        self._manager = ClusterManager(spark, subscriptions=stores, directory=directory, config=config)
        self._manager.attach(travel, lambda: rounds.done)
        self._on_failed = on_failed
        self.probes = self._manager.probes
        threading.Thread(target=self._keep, name="manager", daemon=True).start()

    def assignment(self) -> SliceAssignment:
        return self._manager.assignment(self._slices)

    def _keep(self) -> None:
        try:
            while True:
                time.sleep(TICK_S)
                plan = self._manager.tick(time.time_ns() // 1_000_000)
                if plan is not None and plan.changes:
                    _logger.warning("%d hosts: %s", len(self._manager.placement.hosts), plan.decision)
        except Exception as error:
            self._on_failed(error)

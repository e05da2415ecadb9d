"""The Spark engine's surroundings in the service: its link and its process, from start to stop."""

from __future__ import annotations

from pathlib import Path

from lavant.broker.protocol.match_protocol import MatchRequest
from lavant.service.engines.spark.engine import SparkEngine
from lavant.service.engines.spark.link import EngineLink
from lavant.service.engines.spark.settings import SparkSettings
from lavant.service.engines.spark.subprocess import SparkProcess
from lavant.service.observability.openmetrics import MetricFamily
from lavant.service.runtime.ingest import Ingest


class SparkSupervisor:
    """Of one engine, whose files are in a directory."""

    def __init__(self, engine: SparkEngine, access: Ingest, settings: SparkSettings, directory: Path) -> None:
        self._engine = engine
        self._deliveries = access.deliveries(engine)
        self._link = EngineLink(engine, access, self._deliveries)
        self._settings = settings
        self._directory = directory
        self._child: SparkProcess | None = None

    async def start(self) -> None:
        """Raises `MissingComponent` if Spark cannot be started at all, because there is no Java, say."""
        await self._link.open()
        order = MatchRequest(
            port=self._link.port,
            secret=self._link.secret,
            master=self._settings.master,
            hosts_max=self._settings.hosts_max,
            slices=self._settings.slices,
            directory=str(self._directory.absolute()),
        )
        self._child = SparkProcess(order, self._link.greeted, self._link.lost)
        try:
            await self._child.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop()
        await self._link.close()

    def fault(self) -> str | None:
        """Why nothing is matched now; None if all is well."""
        if self._link.hosts and not self._link.fault:
            return None
        state = "is starting" if self._child is None else self._child.state
        if self._link.fault:
            state = f"tries again what failed: {self._link.fault}"
        return f"publications are accepted, and delivered later: the Spark process {state}"

    def families(self) -> list[MetricFamily]:
        """For `/metrics`."""
        starts = 0 if self._child is None else self._child.starts
        return [
            _one("owed", "gauge", "Publications accepted and not yet in queues.", self._engine.owed),
            _one("hosts", "gauge", "Hosts that match; 0 while Spark starts.", self._link.hosts),
            _one("starts", "counter", "Starts of the Spark process.", starts),
            _one("too_large", "counter", "Notifications too large for their queues.", self._deliveries.too_large),
        ]


def _one(name: str, kind: str, help: str, value: float) -> MetricFamily:
    return MetricFamily(f"lavant_engine_{name}", kind, help, [({}, value)])

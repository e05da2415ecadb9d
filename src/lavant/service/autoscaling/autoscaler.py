"""Builds the resource manager of a server from its file, and starts and stops it."""

from __future__ import annotations

from pathlib import Path

from lavant.broker.protocol.amqp_messages import is_amqp
from lavant.broker.protocol.jobs import DefineJobs
from lavant.broker.protocol.queues import Refused
from lavant.broker.queues.machine import Queues
from lavant.broker.workflows.definitions.definition import queue_of
from lavant.core.errors import InvalidValue
from lavant.core.worker_pool import BACKEND_VARIABLE, WorkerPoolSettings
from lavant.service.autoscaling.allocators.interface import ConsumerAllocator
from lavant.service.autoscaling.allocators.kubernetes import KubernetesAllocator, deployment_names
from lavant.service.autoscaling.allocators.kubernetes_access import find_access
from lavant.service.autoscaling.allocators.kubernetes_api import KubernetesApi
from lavant.service.autoscaling.allocators.processes import ProcessAllocator
from lavant.service.autoscaling.config_file import ResourcesFile
from lavant.service.autoscaling.manager import ResourceManager
from lavant.service.autoscaling.monitor import Monitor
from lavant.service.autoscaling.views import Resources, families, resources
from lavant.service.observability.metrics import figures_of
from lavant.service.observability.openmetrics import MetricFamily
from lavant.service.rabbitmq.settings import RabbitMQSettings
from lavant.service.runtime.broker_runtime import BrokerRuntime


class Autoscaler:
    """Created before the server listens, started once it does."""

    def __init__(self, path: Path, service: BrokerRuntime, queues: Queues) -> None:
        file = self._file = ResourcesFile(path)
        self._service = service
        self._queues = queues
        names = file.system.network.job_names, file.system.network.topic_names
        self._monitor = Monitor(*names, file.monitor())
        self.observers = self._monitor.observers
        self._manager: ResourceManager | None = None

    @property
    def rabbitmq(self) -> RabbitMQSettings | None:
        """Settings of RabbitMQ, if workers get their tasks there."""
        workers = self._file.workers
        return RabbitMQSettings(url=workers.url, lease_s=workers.lease_s) if is_amqp(workers.url) else None

    async def start(self, url: str) -> None:
        """Workers reach the server at `url`, unless the file says otherwise."""
        answer = await self._service.execute(DefineJobs(self._file.workflows))
        if isinstance(answer, Refused):
            raise InvalidValue(f"{self._file.name}: the workflow was refused: {answer.reason}")
        consumers = consumer_allocator(self._file, url)
        self._manager = ResourceManager(self._file, self._monitor, consumers, self._requests)
        await self._manager.start()

    async def stop(self) -> None:
        if self._manager is not None:
            await self._manager.stop()

    def view(self) -> Resources | None:
        return None if self._manager is None else resources(self._manager)

    def families(self) -> list[MetricFamily]:
        return [] if self._manager is None else families(self._manager)

    def _requests(self) -> tuple[float, ...]:
        found = [figures_of(self._queues, queue_of(name)) for name in self._file.system.network.topic_names]
        return tuple(float(figures.visible + figures.in_flight + figures.delayed) for figures in found)


def consumer_allocator(file: ResourcesFile, url: str) -> ConsumerAllocator:
    """The allocator that the file names."""
    if file.allocator == ProcessAllocator.name:
        return _processes(file, url)
    if file.allocator == KubernetesAllocator.name:
        table = file.kubernetes
        names = deployment_names({topic: each.deployment for topic, each in file.topics.items()}, table.deployment)
        access = find_access(table.kubeconfig, table.context)
        return KubernetesAllocator(KubernetesApi(access, table.namespace, force=table.force), names)
    known = f"{ProcessAllocator.name} and {KubernetesAllocator.name}"
    raise InvalidValue(f"{file.name}: there is no allocator {file.allocator!r}; there are {known}")


def _processes(file: ResourcesFile, url: str) -> ProcessAllocator:
    """A URL with a password goes into the environment, where other users cannot see it."""
    workers = file.workers
    for topic, table in file.topics.items():
        if not table.worker:
            raise InvalidValue(f"{file.name}: topic {topic!r} has no worker; set worker to its function")
    is_elsewhere = is_amqp(workers.url)
    pools = {
        topic: WorkerPoolSettings(
            place=table.worker,
            topic=topic,
            url=workers.url if workers.url and not is_elsewhere else url,
            ca_file=workers.ca_file,
            lease_s=workers.lease_s,
            drain_s=workers.drain_s,
            silence_s=workers.silence_s,
        )
        for topic, table in file.topics.items()
    }
    return ProcessAllocator(pools, file.directory, {BACKEND_VARIABLE: workers.url} if is_elsewhere else {})

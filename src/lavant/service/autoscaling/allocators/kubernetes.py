"""Consumers as pods: scales one Deployment for each topic. The cluster starts, drains and replaces the pods.

    wanted ──apply──► deployments/NAME/scale        pods ──ready──► deployments/NAME ──poll──► counts

The resource allocator of the paper's implementation does the same with ReplicationControllers (P. Nguyen, K.
Nahrstedt, "Resource Management for Elastic Publish Subscribe Systems"). A pod that is stopped gets SIGTERM; the worker
then finishes its tasks within `terminationGracePeriodSeconds`.

Decisions do not depend on the cluster: the wanted numbers are kept and applied when it answers again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Mapping

from lavant.core.errors import InvalidValue, LavantError
from lavant.service.autoscaling.allocators.interface import ConsumerCounts
from lavant.service.autoscaling.allocators.kubernetes_api import ApiFault, Deployment, KubernetesApi

LOOK_S = 2.0
PAUSE_S_MAX = 60.0
NAME_CHARACTERS_MAX = 63
PATTERN = "lavant-worker-{topic}"

_logger = logging.getLogger(__name__)


class KubernetesAllocator:
    """`deployments` are names by topic. They must exist; they and their pods stay when the server stops."""

    name = "kubernetes"

    def __init__(self, api: KubernetesApi, deployments: Mapping[str, str], *, look_s: float = LOOK_S) -> None:
        self._api = api
        self._names = dict(deployments)
        self._look_s = look_s
        self._wanted: dict[str, int] = {}
        self._deployments: dict[str, Deployment] = {}
        self._faults: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises for permanent errors; a cluster that does not answer may come back."""
        try:
            for topic, name in self._names.items():
                self._deployments[topic] = await self._api.deployment(name)
        except ApiFault as fault:
            if not fault.is_passing:
                raise
            _logger.warning("%s; trying again", fault)
            self._faults = dict.fromkeys(self._names, str(fault))
        self._task = asyncio.create_task(self._run(), name="kubernetes allocator")

    async def scale(self, topic: str, consumers: int) -> None:
        self._wanted[topic] = consumers
        self._changed.set()

    def counts(self) -> dict[str, ConsumerCounts]:
        return {topic: self._counts(topic) for topic in self._names}

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _counts(self, topic: str) -> ConsumerCounts:
        deployment = self._deployments.get(topic)
        wanted, fault = self._wanted.get(topic, 0), self._faults.get(topic, "")
        if deployment is None:
            return ConsumerCounts(wanted=wanted, running=0, fault=fault)
        leaving = deployment.status.terminating_replicas
        return ConsumerCounts(
            wanted=wanted,
            running=deployment.status.ready_replicas,
            leaving=0 if leaving is None else leaving,
            fault=fault if fault else deployment.fault,
        )

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        failures = 0
        while True:
            self._changed.clear()
            retry_after_s = await self._round()
            failures = 0 if retry_after_s is None else failures + 1
            if retry_after_s is not None:  # changes meanwhile are applied afterwards
                await asyncio.sleep(pause_s(failures, retry_after_s, self._look_s, random.random()))
                continue
            try:
                async with asyncio.timeout(self._look_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _round(self) -> float | None:
        """Poll all Deployments and scale them. None on success, else how long to wait at least."""
        retry_after_s: float | None = None
        for topic, name in self._names.items():
            try:
                await self._settle(topic, name)
            except LavantError as fault:
                self._note(topic, str(fault))
                asked_s = fault.retry_after_s if isinstance(fault, ApiFault) else 0.0
                retry_after_s = max(asked_s, 0.0 if retry_after_s is None else retry_after_s)
                if isinstance(fault, ApiFault) and fault.is_passing:  # the cluster is at fault, not this Deployment
                    for other in self._names:
                        self._faults[other] = str(fault)
                    break
            else:
                self._faults.pop(topic, None)
        return retry_after_s

    async def _settle(self, topic: str, name: str) -> None:
        deployment = await self._api.deployment(name)
        self._deployments[topic] = deployment
        wanted = self._wanted.get(topic)
        if wanted is not None and wanted != deployment.spec.replicas:
            await self._api.scale(name, wanted)

    def _note(self, topic: str, fault: str) -> None:
        """Log each fault once."""
        if self._faults.get(topic) != fault:
            _logger.warning("consumers of topic %s: %s; trying again", topic, fault)
        self._faults[topic] = fault


def pause_s(failures: int, retry_after_s: float, look_s: float, chance: float) -> float:
    """Exponential backoff with jitter: between half and all of it by `chance`; longer if the cluster says so.

    >>> [pause_s(failures, 0.0, 2.0, 1.0) for failures in (1, 2, 3, 50)], pause_s(1, 30.0, 2.0, 0.0)
    ([2.0, 4.0, 8.0, 60.0], 30.0)
    """
    own_s = min(look_s * 2.0 ** min(failures - 1, 30), PAUSE_S_MAX) * (0.5 + chance / 2)
    return max(own_s, min(retry_after_s, PAUSE_S_MAX))


def deployment_names(topics: Mapping[str, str], pattern: str = PATTERN) -> dict[str, str]:
    """Names by topic: as given, or made from the topic by the pattern, in lower case as clusters require.

    >>> deployment_names({"A": "", "Fit_2": "", "C": "painters"})
    {'A': 'lavant-worker-a', 'Fit_2': 'lavant-worker-fit-2', 'C': 'painters'}
    """
    if "{topic}" not in pattern:
        raise InvalidValue(f"the pattern of Deployments' names must have {{topic}} in it, got {pattern!r}")
    names = {
        topic: given if given else pattern.replace("{topic}", topic.lower().replace("_", "-"))
        for topic, given in topics.items()
    }
    by_name: dict[str, str] = {}
    for topic, name in names.items():
        if re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) is None or len(name) > NAME_CHARACTERS_MAX:
            raise InvalidValue(
                f"topic {topic!r} would have the Deployment {name!r}: names are of at most {NAME_CHARACTERS_MAX} small "
                "letters, digits and '-'; give another with deployment = …"
            )
        if name in by_name:
            raise InvalidValue(f"topics {by_name[name]!r} and {topic!r} would share the Deployment {name!r}")
        by_name[name] = topic
    return names

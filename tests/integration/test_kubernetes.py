"""Consumers as pods, against a stand-in of the cluster's API that allows only what the manifests' Role allows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.cluster_stand_in import TOKEN, Cluster, Deployment, Rule
from tests.integration.server_processes import free_port

from lavant.core.errors import MissingComponent
from lavant.service.autoscaling.allocators.interface import ConsumerCounts
from lavant.service.autoscaling.allocators.kubernetes import KubernetesAllocator
from lavant.service.autoscaling.allocators.kubernetes_access import ClusterAccess, read_kubeconfig
from lavant.service.autoscaling.allocators.kubernetes_api import FIELD_MANAGER, ApiFault, KubernetesApi
from lavant.service.autoscaling.autoscaler import consumer_allocator
from lavant.service.autoscaling.config_file import ResourcesFile

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"
NAME = "lavant-worker-resize"
LOOK_S = 0.02


def rules() -> list[Rule]:
    documents = yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text())
    return next(each["rules"] for each in documents if each["kind"] == "Role")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    running = Cluster(rules())
    running.deployments[NAME] = Deployment()
    yield running
    running.stop()


def access(cluster: Cluster, **changes: Any) -> ClusterAccess:
    return ClusterAccess(**{"url": cluster.url, "namespace": "lavant", "token": TOKEN, **changes})


def api(cluster: Cluster, *, force: bool = False, timeout_s: float = 5.0, **changes: Any) -> KubernetesApi:
    return KubernetesApi(access(cluster, **changes), force=force, timeout_s=timeout_s)


def allocate(
    api: KubernetesApi, scenario: Callable[[KubernetesAllocator], Coroutine[Any, Any, None]], **names: str
) -> None:
    async def run() -> None:
        allocator = KubernetesAllocator(api, names if names else {"resize": NAME}, look_s=LOOK_S)
        await allocator.start()
        try:
            async with asyncio.timeout(30):
                await scenario(allocator)
        finally:
            await allocator.stop()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_what_is_wanted_is_applied_and_what_is_ready_is_told(cluster: Cluster) -> None:
    deployment = cluster.deployments[NAME]

    async def scenario(allocator: KubernetesAllocator) -> None:
        assert allocator.counts() == {"resize": ConsumerCounts(wanted=0, running=1)}
        for wanted in (5, 2, 9):
            await allocator.scale("resize", wanted)
            await until(lambda wanted=wanted: deployment.replicas == wanted)  # type: ignore[misc]
            assert deployment.owners == {FIELD_MANAGER}
            assert allocator.counts()["resize"].running != wanted, "pods take their time"
            deployment.ready, deployment.terminating = wanted, 3
            told = ConsumerCounts(wanted=wanted, running=wanted, leaving=3)
            await until(lambda told=told: allocator.counts() == {"resize": told})  # type: ignore[misc]

    allocate(api(cluster), scenario)
    assert deployment.replicas == 9, "pods live on when the server ends"


def test_a_number_that_is_right_already_is_not_written(cluster: Cluster) -> None:
    async def scenario(allocator: KubernetesAllocator) -> None:
        await allocator.scale("resize", 1)
        looks = len(cluster.requests)
        await until(lambda: len(cluster.requests) > looks + 5)

    allocate(api(cluster), scenario)
    assert {verb for verb, _ in cluster.requests} == {"get"}


def test_who_else_sets_the_number_is_named_and_not_undone(cluster: Cluster) -> None:
    deployment = cluster.deployments[NAME]

    async def scenario(allocator: KubernetesAllocator) -> None:
        await allocator.scale("resize", 4)
        await until(lambda: deployment.replicas == 4)
        deployment.update("kubectl", 7)
        await until(lambda: "409" in allocator.counts()["resize"].fault)
        fault = allocator.counts()["resize"].fault
        assert 'conflict with "kubectl"' in fault
        assert "force = true" in fault
        assert (deployment.replicas, deployment.owners) == (7, {"kubectl"})
        deployment.update("kubectl", 4)  # they agree again
        await until(lambda: allocator.counts()["resize"].fault == "")

    allocate(api(cluster), scenario)


def test_force_takes_the_number_over(cluster: Cluster) -> None:
    deployment = cluster.deployments[NAME]
    deployment.update("kubectl", 7)

    async def scenario(allocator: KubernetesAllocator) -> None:
        await allocator.scale("resize", 4)
        await until(lambda: deployment.replicas == 4)
        assert deployment.owners == {FIELD_MANAGER}

    allocate(api(cluster, force=True), scenario)


@pytest.mark.parametrize(
    ("changes", "name", "said"),
    [
        ({"token": "another"}, NAME, "401: Unauthorized; check the token"),
        ({}, "lavant-worker-other", "403: deployments .* the role needs get on deployments, and patch on"),
        ({"namespace": "elsewhere"}, NAME, "404: .* apply its manifest"),
    ],
)
def test_a_mistake_that_time_will_not_mend_is_raised_at_the_start(
    cluster: Cluster, changes: dict[str, Any], name: str, said: str
) -> None:
    async def scenario(_: KubernetesAllocator) -> None:
        raise AssertionError("it started")

    with pytest.raises(ApiFault, match=said):
        allocate(api(cluster, **changes), scenario, resize=name)


def test_a_deployment_that_is_not_there_is_a_mistake(cluster: Cluster) -> None:
    del cluster.deployments[NAME]
    with pytest.raises(ApiFault, match=f'404: deployments.apps "{NAME}" not found; apply its manifest'):
        asyncio.run(api(cluster).deployment(NAME))


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_decisions_go_on_while_the_cluster_fails_and_the_latest_is_applied(
    cluster: Cluster, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    deployment = cluster.deployments[NAME]

    async def scenario(allocator: KubernetesAllocator) -> None:
        await allocator.scale("resize", 3)
        await until(lambda: deployment.replicas == 3)
        cluster.fault = (status, {}, "busy with an election")
        await until(lambda: "election" in allocator.counts()["resize"].fault)
        for wanted in (5, 8, 6):
            await allocator.scale("resize", wanted)
        seen = len(cluster.requests)
        await until(lambda: len(cluster.requests) >= seen + 2)
        assert allocator.counts()["resize"].wanted == 6
        cluster.fault = None
        await until(lambda: deployment.replicas == 6)
        await until(lambda: allocator.counts()["resize"].fault == "")

    with caplog.at_level(logging.WARNING):
        allocate(api(cluster), scenario)
    assert caplog.text.count("election") == 1, "a fault is told once"


def test_it_waits_as_long_as_the_cluster_says(cluster: Cluster) -> None:
    async def scenario(allocator: KubernetesAllocator) -> None:
        cluster.fault = (429, {"Retry-After": "30"}, "too many requests")
        await until(lambda: "too many" in allocator.counts()["resize"].fault)
        seen = len(cluster.requests)
        await asyncio.sleep(10 * LOOK_S)
        assert len(cluster.requests) == seen

    allocate(api(cluster), scenario)


def test_a_cluster_that_does_not_answer_at_the_start_is_waited_for(cluster: Cluster) -> None:
    cluster.fault = (503, {}, "etcd has no leader")

    async def scenario(allocator: KubernetesAllocator) -> None:
        assert "etcd has no leader" in allocator.counts()["resize"].fault
        await allocator.scale("resize", 2)
        cluster.fault = None
        await until(lambda: cluster.deployments[NAME].replicas == 2)

    allocate(api(cluster), scenario)


def test_one_that_is_slow_or_away_is_a_passing_fault(cluster: Cluster) -> None:
    async def fault_of(api: KubernetesApi) -> ApiFault:
        with pytest.raises(ApiFault) as caught:
            await api.deployment(NAME)
        return caught.value

    cluster.delay_s = 0.5
    slow = asyncio.run(fault_of(api(cluster, timeout_s=0.05)))
    away = asyncio.run(fault_of(api(cluster, url=f"http://127.0.0.1:{free_port()}")))
    for fault in (slow, away):
        assert fault.is_passing
        assert "the cluster does not answer at http://127.0.0.1" in str(fault)
        assert TOKEN not in str(fault)
    assert "timed out" in str(slow)


def test_what_keeps_pods_from_running_is_told(cluster: Cluster) -> None:
    cluster.deployments[NAME].conditions = [
        {"type": "Available", "status": "True", "message": "well"},
        {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods=20"},
    ]

    async def scenario(allocator: KubernetesAllocator) -> None:
        assert allocator.counts()["resize"].fault == "exceeded quota: pods=20"

    allocate(api(cluster), scenario)


def test_one_deployment_in_trouble_does_not_hold_up_the_others(cluster: Cluster) -> None:
    cluster.rules = [{**rule, "resourceNames": ["first", "second"]} for rule in rules()]
    cluster.deployments = {"first": Deployment(), "second": Deployment()}

    async def scenario(allocator: KubernetesAllocator) -> None:
        cluster.deployments.pop("first")
        await allocator.scale("A", 3)
        await allocator.scale("B", 3)
        await until(lambda: cluster.deployments["second"].replicas == 3)
        counts = allocator.counts()
        assert "404" in counts["A"].fault
        assert counts["B"].fault == ""

    allocate(api(cluster), scenario, A="first", B="second")


def test_a_token_that_is_replaced_is_read_again(cluster: Cluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    with_file = api(cluster, token="", token_file=token)
    with pytest.raises(ApiFault, match="401"):
        asyncio.run(with_file.deployment(NAME))
    token.write_text(f"{TOKEN}\n")
    assert asyncio.run(with_file.deployment(NAME)).spec.replicas == 1
    token.unlink()
    with pytest.raises(MissingComponent, match="cannot be read"):
        asyncio.run(with_file.deployment(NAME))


def test_the_resources_file_of_the_manifests_scales_their_deployment(cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    tables = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "lavant"}}],
        "clusters": [{"name": "c", "cluster": {"server": cluster.url}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    kubeconfig.write_text(yaml.safe_dump(tables))
    text = (MANIFESTS / "resources.toml").read_text()
    (tmp_path / "resources.toml").write_text(f"{text}\n[kubernetes]\nkubeconfig = '{kubeconfig}'\n")
    assert read_kubeconfig(kubeconfig).url == cluster.url

    async def scenario() -> None:
        allocator = consumer_allocator(ResourcesFile(tmp_path / "resources.toml"), "lavant://127.0.0.1")
        await allocator.start()
        try:
            await allocator.scale("resize", 4)
            async with asyncio.timeout(30):
                await until(lambda: cluster.deployments[NAME].replicas == 4)
        finally:
            await allocator.stop()

    asyncio.run(scenario())

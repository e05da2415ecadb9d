"""The manifests and the Dockerfile agree with each other and with the code. No cluster is needed to see that."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from lavant.cli import commands
from lavant.client.workers.functions import load
from lavant.core.addresses import QUEUES_PORT
from lavant.core.kernels.cache import VARIABLE
from lavant.service.auth.browser_guard import HostList
from lavant.service.autoscaling.allocators.kubernetes import deployment_names
from lavant.service.autoscaling.config_file import ResourcesFile
from lavant.service.net.http_dispatch import OPERATIONS_PATHS

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "deploy" / "kubernetes"
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
SPARK_DOCKERFILE = (ROOT / "deploy" / "spark.Dockerfile").read_text()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

Manifest = dict[str, Any]


def read(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((DIRECTORY / name).read_text()))


KUSTOMIZATION = read("kustomization.yaml")[0]
MANIFESTS = [manifest for name in KUSTOMIZATION["resources"] for manifest in read(name)]
GENERATED = {each["name"]: set(each["files"]) for each in KUSTOMIZATION["configMapGenerator"]}
WORKLOADS = [each for each in MANIFESTS if each["kind"] in {"StatefulSet", "Deployment"}]


def the(kind: str) -> Manifest:
    [found] = [each for each in MANIFESTS if each["kind"] == kind]
    return found


def container(workload: Manifest) -> Manifest:
    [only] = workload["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def options(command: str, arguments: list[str]) -> dict[str, Any]:
    """As the command line itself reads them; raises what is wrong."""
    parsed = typer.main.get_command(commands).commands[command]  # type: ignore[attr-defined]
    context = parsed.make_context(command, list(arguments))
    values: dict[str, Any] = context.params
    return values


def test_everything_that_is_there_is_applied_and_in_one_namespace() -> None:
    files = {path.name for path in DIRECTORY.iterdir() if path.is_file()} - {"kustomization.yaml"}
    assert files == set(KUSTOMIZATION["resources"]).union(*GENERATED.values())
    assert {each["metadata"].get("namespace") for each in MANIFESTS if each["kind"] != "Namespace"} == {"lavant"}
    assert the("Namespace")["metadata"]["name"] == KUSTOMIZATION["namespace"] == "lavant"


def test_the_server_may_read_and_scale_the_deployments_of_its_topics_and_nothing_else() -> None:
    file = ResourcesFile(DIRECTORY / "resources.toml")
    names = sorted(deployment_names(dict.fromkeys(file.topics, ""), file.kubernetes.deployment).values())
    assert the("Role")["rules"] == [
        {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": names, "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": names, "verbs": ["patch"]},
    ]
    assert names == sorted(each["metadata"]["name"] for each in MANIFESTS if each["kind"] == "Deployment")
    assert not [each for each in MANIFESTS if each["kind"].startswith("ClusterRole")]


def test_only_the_server_is_bound_to_the_role_and_only_its_pod_has_a_token() -> None:
    account, role = the("ServiceAccount")["metadata"]["name"], the("Role")["metadata"]["name"]
    binding = the("RoleBinding")
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "lavant"}]
    assert the("ServiceAccount")["automountServiceAccountToken"] is False
    with_token = {
        each["kind"]: each["spec"]["template"]["spec"].get("serviceAccountName")
        for each in WORKLOADS
        if each["spec"]["template"]["spec"]["automountServiceAccountToken"]
    }
    assert with_token == {"StatefulSet": account}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each["metadata"]["name"])
def test_pods_have_no_privileges(workload: Manifest) -> None:
    pod = workload["spec"]["template"]["spec"]
    user = int(DOCKERFILE.partition("--uid ")[2].split()[0])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == user
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    limits = container(workload)["securityContext"]
    assert limits == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each["metadata"]["name"])
def test_what_is_mounted_is_there_and_labels_are_found(workload: Manifest) -> None:
    pod = workload["spec"]["template"]["spec"]
    claims = workload["spec"].get("volumeClaimTemplates", [])
    volumes = {each["name"] for each in pod["volumes"]} | {each["metadata"]["name"] for each in claims}
    assert {each["name"] for each in container(workload)["volumeMounts"]} == volumes
    assert {each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each} <= set(GENERATED)
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_image_and_version_are_the_same_everywhere() -> None:
    assert {container(each)["image"] for each in WORKLOADS} == {f"lavant:{VERSION}"}
    assert [(each["name"], each["newTag"]) for each in KUSTOMIZATION["images"]] == [("lavant", VERSION)]
    assert f"-t lavant:{VERSION} ." in DOCKERFILE
    assert 'ENTRYPOINT ["lavant"]' in DOCKERFILE


def test_the_server_is_started_as_the_command_line_allows_and_listens_where_others_look() -> None:
    command, *arguments = container(the("StatefulSet"))["args"]
    assert command == "serve"
    given = options(command, arguments)
    assert (given["host"], given["port"]) == ("0.0.0.0", QUEUES_PORT)
    mounts = {each["name"]: each["mountPath"] for each in container(the("StatefulSet"))["volumeMounts"]}
    assert str(given["data"]) == mounts["data"]
    assert {str(given["keys_file"].parent), str(given["credentials_file"].parent)} == {mounts["keys"]}
    assert given["resources"] == Path(mounts["system"]) / "resources.toml"
    assert {given["tls_certificate"].parent, given["tls_key"].parent} == {Path(mounts["tls"])}
    [port] = container(the("StatefulSet"))["ports"]
    [service_port] = the("Service")["spec"]["ports"]
    assert port["containerPort"] == service_port["port"] == QUEUES_PORT
    assert service_port["targetPort"] == port["name"]
    assert the("Service")["spec"]["selector"] == the("StatefulSet")["spec"]["selector"]["matchLabels"]
    assert the("StatefulSet")["spec"]["serviceName"] == the("Service")["metadata"]["name"]
    assert the("StatefulSet")["spec"]["replicas"] == 1
    assert f"EXPOSE {QUEUES_PORT}" in DOCKERFILE


def test_workers_find_the_server_and_have_time_to_drain() -> None:
    worker = the("Deployment")
    command, place, *arguments = container(worker)["args"]
    assert command == "worker"
    given = options(command, [place, *arguments])
    file = ResourcesFile(DIRECTORY / "resources.toml")
    assert given["topic"] == list(file.topics)
    [handler] = load(str(DIRECTORY / Path(place).name), given["topic"])
    assert handler.topic in file.topics
    [mount] = [each for each in container(worker)["volumeMounts"] if each["name"] == "tasks"]
    assert place == f"{mount['mountPath']}/tasks.py"
    environment = {each["name"]: each for each in container(worker)["env"]}
    assert environment["LAVANT_URL"]["value"] == f"lavants://{the('Service')['metadata']['name']}:{QUEUES_PORT}"
    [tls] = [each for each in container(worker)["volumeMounts"] if each["name"] == "tls"]
    assert environment["LAVANT_CA_FILE"]["value"] == f"{tls['mountPath']}/ca.crt"
    [volume] = [each for each in worker["spec"]["template"]["spec"]["volumes"] if each["name"] == "tls"]
    assert [each["key"] for each in volume["secret"]["items"]] == ["ca.crt"], "the server's key is not for workers"
    assert "secretKeyRef" in environment["LAVANT_KEY"]["valueFrom"]
    assert worker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= given["drain_s"] + 5


def test_nobody_but_the_server_sets_the_number_of_workers() -> None:
    assert "replicas" not in the("Deployment")["spec"]


def test_no_secret_is_in_the_manifests() -> None:
    assert not [each for each in MANIFESTS if each["kind"] == "Secret"]


def test_the_server_answers_by_the_names_that_the_cluster_gives_it() -> None:
    service, workload = the("Service")["metadata"], the("StatefulSet")
    [server] = workload["spec"]["template"]["spec"]["containers"]
    given = [argument.partition("=") for argument in server["args"]]
    hosts = HostList(value for name, _, value in given if name == "--public-host")
    short = f"{service['name']}.{service['namespace']}"
    pod = f"{workload['metadata']['name']}-0.{short}.svc"
    for name in (service["name"], short, f"{short}.svc", f"{short}.svc.cluster.local", pod, f"{pod}.cluster.local"):
        assert f"{name}:{QUEUES_PORT}" in hosts, name
    assert "evil.example" not in hosts


def test_kernels_are_compiled_when_the_image_is_built_for_any_processor() -> None:
    built = DOCKERFILE.rpartition("FROM ")[2]
    directory = built.partition(f"{VARIABLE}=")[2].split()[0]
    assert built.index("ENV ") < built.index("RUN lavant warm-up") < built.index("USER "), "root's, and read-only"
    assert f"chmod -R a+rX {directory}" in built
    assert "ARG CPU_NAME=generic\n" in built
    assert {"NUMBA_CPU_NAME=$CPU_NAME", "NUMBA_CPU_FEATURES=$CPU_FEATURES"} <= set(built.split())


def test_a_pod_gets_requests_when_it_is_ready_and_is_restarted_only_when_it_has_failed() -> None:
    server = container(the("StatefulSet"))
    probes = {name: server[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startupProbe": "/healthz",
        "readinessProbe": "/readyz",
        "livenessProbe": "/healthz",
    }
    assert {probe["path"] for probe in probes.values()} <= OPERATIONS_PATHS
    assert {probe["port"] for probe in probes.values()} == {server["ports"][0]["name"]}
    assert {probe["scheme"] for probe in probes.values()} == {"HTTPS"}


def test_only_clients_reach_the_server_and_nobody_reaches_the_workers() -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in MANIFESTS if each["kind"] == "NetworkPolicy"}
    assert policies["lavant-deny"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    server = the("StatefulSet")["spec"]["selector"]["matchLabels"]
    worker = the("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policies["lavant-server"]["podSelector"]["matchLabels"] == server
    [rule] = policies["lavant-server"]["ingress"]
    assert rule["from"][0]["podSelector"]["matchLabels"].items() <= worker.items()
    assert rule["ports"] == [{"protocol": "TCP", "port": QUEUES_PORT}]
    assert policies["lavant-worker"]["podSelector"]["matchLabels"].items() <= worker.items()
    to_server, _ = policies["lavant-worker"]["egress"]
    assert to_server == {"to": [{"podSelector": {"matchLabels": server}}], "ports": rule["ports"]}


def test_the_image_listens_for_other_machines_and_runs_without_rights() -> None:
    built = DOCKERFILE.rpartition("FROM ")[2]
    assert "LAVANT_HOST=0.0.0.0" in built.split()
    assert built.index("USER lavant") < built.index("ENTRYPOINT")
    command = json.loads(built.partition("CMD ")[2])
    assert str(options(command[0], command[1:])["data"]) == built.partition("VOLUME ")[2].split()[0]


def test_images_have_the_spark_and_the_uv_that_are_locked() -> None:
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    [spark] = [package["version"] for package in packages if package["name"] == "pyspark"]
    assert f"FROM apache/spark:{spark}-scala2.13-" in SPARK_DOCKERFILE
    assert f"-t lavant-spark:{VERSION} ." in SPARK_DOCKERFILE
    uv = (ROOT / "tools" / "setup").read_text().partition("uv_version=")[2].split()[0]
    for dockerfile in (DOCKERFILE, SPARK_DOCKERFILE):
        assert f"COPY --from=ghcr.io/astral-sh/uv:{uv} /uv " in dockerfile
    assert f"{VARIABLE}=/opt/lavant/cache" in SPARK_DOCKERFILE


@pytest.mark.soak
def test_the_manifests_are_valid_by_the_schemas_of_kubernetes() -> None:
    uv = Path(sys.executable).with_name("uv")
    files = [each for each in sorted(DIRECTORY.glob("*.yaml")) if each.name != "kustomization.yaml"]
    tool = [str(uv), "tool", "run", "--python", sys.executable, "--from", "kubernetes-validate", "kubernetes-validate"]
    done = subprocess.run([*tool, "--strict", *map(str, files)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(" passed for resource ") >= len(files)

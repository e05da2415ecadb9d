"""The wheel in empty environments: the base installation is a small and whole client, and each extra adds its part."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.installs import ROOT, Installed, build_wheel, constraints
from tests.integration.serving import Served

from lavant.core.errors import MissingComponent

BASE_MB_MAX = 60
EXTRAS = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
CLIENT = """
import os

import lavant

with lavant.connect(os.environ["LAVANT_URL"]) as client:
    client.subscribe("volume > 5", name="large")
    client.publish({"volume": 7}, payload=b"seven")
    [got] = client.subscriptions()
    print(got.name, got.filter)
"""
TASKS = """
from lavant import task

@task("hello")
def hello(job):
    return b"hello " + job.input
"""
JOB_TYPES = """
topics = ["hello"]

[jobs.greet]
start = "hello"

[jobs.greet.tasks]
hello = { topic = "hello" }
"""
USES = {
    "connect": "import grpc, lavant.pipeline",
    "encryption": "import lavant; lavant.Key.generate(lavant.Schema([lavant.NumericAttribute('a', 0, 9, 1)])).cipher()",
    "hdfs": "import lavant.broker.storage.objects.hdfs, hdfs_native",
    "kubernetes": "import yaml, lavant",
    "models": "import lavant.models.evaluation",
    "opentelemetry": "import os, lavant.tracing as t; os.environ['OTEL_TRACES_EXPORTER'] = 'otlp'; t._set_up('s')",
    "rabbitmq": "import lavant.amqp",
    "s3": "import lavant.broker.storage.objects.s3, boto3",
    "server": "import lavant.service.runtime.process",
    "spark": "import lavant.pipeline.stream.driver",
    "zookeeper": "import kazoo, lavant",
}
USES["all"] = "; ".join(each for name, each in USES.items() if name != "encryption")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return constraints(tmp_path_factory.mktemp("locked"))


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory, wheel: Path, locked: Path) -> Installed:
    return Installed(tmp_path_factory.mktemp("base") / "environment", wheel, locked)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, wheel: Path, locked: Path) -> Iterator[Served]:
    installed = Installed(tmp_path_factory.mktemp("server") / "environment", wheel, locked, "server")
    with InstalledServer(installed) as server:
        yield server


class InstalledServer(Served):
    def __init__(self, installed: Installed) -> None:
        self.data = None
        self._start([str(installed.lavant), "serve", "--memory", "--port", "0"])


def test_the_base_installation_is_small(base: Installed) -> None:
    assert base.size_mb <= BASE_MB_MAX


def test_a_client_of_the_base_installation_talks_to_an_installed_server(base: Installed, served: Served) -> None:
    assert base.python(CLIENT, served.url) == "large volume > 5\n"
    assert "seven" in base.run("sub", "--name", "large", "--count", "1", url=served.url)
    base.run("queue", "create", "orders", url=served.url)
    base.run("queue", "send", "orders", "one", url=served.url)
    assert json.loads(base.run("queue", "info", "orders", "--json", url=served.url))["figures"]["visible"] == 1
    base.run("subscriptions", "rm", "large", "--yes", url=served.url)


def test_a_worker_of_the_base_installation_runs_a_job(base: Installed, served: Served, tmp_path: Path) -> None:
    tasks, types = tmp_path / "tasks.py", tmp_path / "jobs.toml"
    tasks.write_text(TASKS)
    types.write_text(JOB_TYPES)
    base.run("job", "define", str(types), url=served.url)
    worker = subprocess.Popen([str(base.lavant), "worker", str(tasks), "--url", served.url], stderr=subprocess.PIPE)
    try:
        said = base.run("job", "submit", "greet", "you", "--wait", "60", url=served.url)
    finally:
        worker.terminate()
        worker.communicate()
    assert "hello you" in said


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (("serve", "--memory"), "numpy", "server"),
        (("plan", "network.toml"), "numpy", "models"),
        (("stream", "--subscriptions", "s", "--input", "in", "--output", "out"), "pyspark", "spark"),
        (("keygen", "key", "--attribute", "a:0:9:1"), "numpy", "encryption"),
    ],
)
def test_a_missing_package_is_one_line_that_names_the_extra(
    base: Installed, arguments: tuple[str, ...], package: str, extra: str
) -> None:
    said = base.run(*arguments, code=MissingComponent.exit_code)
    assert said == f"lavant: the package {package} is not installed; add it with pip install 'lavant[{extra}]'\n"


@pytest.mark.soak
@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_brings_what_its_part_needs(tmp_path: Path, wheel: Path, locked: Path, extra: str) -> None:
    Installed(tmp_path / "environment", wheel, locked, extra).python(USES[extra])


@pytest.mark.soak
@pytest.mark.parametrize("python", ["python3.11", "python3.12", "python3.13", "python3.14"])
def test_client_and_server_run_on_each_supported_python(tmp_path: Path, wheel: Path, locked: Path, python: str) -> None:
    if shutil.which(python) is None or subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip(f"there is no {python}")
    client = Installed(tmp_path / "client", wheel, locked, python=python)
    with InstalledServer(Installed(tmp_path / "server", wheel, locked, "server", python)) as server:
        assert client.python(CLIENT, server.url) == "large volume > 5\n"

"""The wheel in empty environments: the base installation is a small and whole client, and each extra adds its part."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.components import do_without
from tests.integration.extras import USES, Command
from tests.integration.installs import ROOT, Installed, build_wheel, environment_of_tests
from tests.integration.serving import Served

from lavant.core.errors import MissingComponent

BASE_MB_MAX = 60
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = sorted(PROJECT["optional-dependencies"])
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
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
ON_EACH_PYTHON = (
    "tests/unit",
    "tests/integration/test_client.py",
    "tests/integration/test_pipeline.py::test_a_log_is_matched_in_batches_and_each_batch_sees_one_version",
)
"""Everything that needs no other program, a server with its client, and the stream on Spark."""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installed:
    return Installed(tmp_path_factory.mktemp("base") / "environment", wheel)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Served]:
    with InstalledServer(Installed(tmp_path_factory.mktemp("server") / "environment", wheel, "server")) as server:
        yield server


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    """One of this machine; `tools/pythons` gets those that it lacks."""
    name = f"python{request.param}"
    found = [shutil.which(name, path=place) for place in (str(ROOT / "build" / "pythons"), None)]
    works = [
        each for each in found if each is not None and subprocess.run([each, "-c", ""], check=False).returncode == 0
    ]
    if not works:
        do_without(f"there is no {name}; run tools/pythons")
    return str(Path(works[0]).resolve())  # an environment finds the library beside the program, not beside a link


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


def test_the_base_installation_checks_its_machine_and_a_server(base: Installed, served: Served) -> None:
    findings = {each["what"]: each for each in json.loads(base.run("doctor", "--json", url=served.url))}
    assert findings["matching"]["said"].endswith("pip install 'lavant[server]'")
    assert findings["Java"]["said"].endswith("pip install 'lavant[spark]'")


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_brings_what_its_part_needs(tmp_path: Path, wheel: Path, extra: str) -> None:
    USES[extra].check(Installed(tmp_path / "environment", wheel, extra))


@pytest.mark.parametrize(("extra", "use"), [(name, use) for name, use in USES.items() if isinstance(use, Command)])
def test_a_command_without_its_extra_says_so_in_one_line(base: Installed, extra: str, use: Command) -> None:
    said = base.run(*use.words, code=MissingComponent.exit_code)
    assert said.startswith("lavant: the package ")
    assert said.endswith(f" is not installed; add it with pip install 'lavant[{extra}]'\n")
    assert said.count("\n") == 1


@pytest.mark.soak
def test_client_and_server_run_on_each_supported_python(tmp_path: Path, wheel: Path, python: str) -> None:
    client = Installed(tmp_path / "client", wheel, python=python)
    with InstalledServer(Installed(tmp_path / "server", wheel, "server", python)) as server:
        assert client.python(CLIENT, server.url) == "large volume > 5\n"


@pytest.mark.soak
@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_runs_on_each_supported_python(tmp_path: Path, wheel: Path, python: str, extra: str) -> None:
    USES[extra].check(Installed(tmp_path / "environment", wheel, extra, python))


@pytest.mark.soak
def test_the_sources_pass_their_tests_on_each_supported_python(tmp_path: Path, python: str) -> None:
    tests = [str(environment_of_tests(tmp_path / "environment", python)), "-m", "pytest", "-q", "-n", "2"]
    done = subprocess.run([*tests, *ON_EACH_PYTHON], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout[-10_000:]

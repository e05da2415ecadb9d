"""What a base installation can import, and the extras that errors name."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from lavant.core.errors import MissingComponent
from lavant.core.packages import EXTRA_OF_MODULE, EXTRA_OF_PACKAGE, named_extras

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
DISTRIBUTIONS = {
    "aio_pika": "aio-pika",
    "botocore": "boto3",
    "grpc": "pyspark[connect]",
    "hdfs_native": "hdfs-native",
    "opentelemetry": "opentelemetry-exporter-otlp-proto-http",
    "yaml": "pyyaml",
}
"""Where it has another name than the package."""
WITHOUT_EXTRAS = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"no {{name}}", name=name)

sys.meta_path.insert(0, Nothing())
"""
BASE = """
import lavant.client.async_client, lavant.client.client, lavant.client.publisher, lavant.client.workers.worker
import lavant.client.workers.prefork, lavant.broker.filters, lavant.cli.messaging.publications, lavant.cli
from lavant import AsyncClient, Client, Filter, Publication, Subscription, Task, Worker, connect, covers, explain, task
"""


def run(program: str) -> str:
    code = WITHOUT_EXTRAS.format(packages=set(EXTRA_OF_PACKAGE)) + program
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stderr


def required(extra: str) -> set[str]:
    """The names of its requirements, and of those of the extras that it includes."""
    found = set()
    for each in EXTRAS[extra]:
        name = re.split(r"[<>= ]", each)[0]
        if name.startswith("lavant["):
            found |= {each for part in name[7:-1].split(",") for each in required(part)}
        else:
            found.add(name)
    return found


def test_clients_workers_and_the_command_line_import_nothing_of_an_extra() -> None:
    assert run(BASE) == ""


def test_an_import_of_an_extra_is_noticed() -> None:
    assert "MissingComponent: the package numpy is not installed" in run("from lavant import PlainMatcher")


@pytest.mark.parametrize(("package", "extra"), EXTRA_OF_PACKAGE.items())
def test_the_extra_that_an_error_names_has_the_package(package: str, extra: str) -> None:
    assert DISTRIBUTIONS.get(package, package) in required(extra)


def test_every_requirement_of_an_extra_is_known_to_the_errors() -> None:
    named = {DISTRIBUTIONS.get(package, package) for package in EXTRA_OF_PACKAGE}
    assert set().union(*map(required, EXTRAS)) == named


def test_parts_that_need_the_packages_of_models_have_them_in_their_extra() -> None:
    named = [extras.split(",") for extras in EXTRA_OF_MODULE.values()]
    assert set().union(*named) <= set(EXTRAS)
    for extras in named:
        if extras not in (["encryption"], ["s3"]):  # which need one of them each, and have it
            assert required("models") <= set().union(*map(required, extras))


def test_all_has_everything() -> None:
    assert required("all") == set().union(*map(required, EXTRAS))


def test_a_module_of_no_extra_keeps_its_own_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), named_extras():
        import_module("no_such_module")


def test_the_error_names_the_package_and_the_extra() -> None:
    said = r"aio_pika is not installed; add it with pip install 'lavant\[rabbitmq\]'"
    with pytest.raises(MissingComponent, match=said), named_extras():
        raise ModuleNotFoundError("no aio_pika", name="aio_pika.abc")

"""What is checked before Spark is started: which Java there is, and whether a master answers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lavant.core.errors import InvalidValue, MissingComponent
from lavant.pipeline.session import (
    bind_address,
    check_java,
    check_master,
    check_settings,
    driver_address,
    java_version,
)


@pytest.mark.parametrize(
    ("shown", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "11.0.22" 2024-01-16', 11),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.1" 2021-10-19', 17),
        ("bash: java: command not found", None),
        ("", None),
    ],
)
def test_the_major_version_is_found_in_what_java_shows(shown: str, version: int | None) -> None:
    assert java_version(shown) == version


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[*,3]", "local-cluster[2, 1, 512]"])
def test_local_masters_are_not_asked(master: str) -> None:
    check_master(master)


def test_a_master_that_answers_is_fine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_master(f"spark://127.0.0.1:{server.getsockname()[1]}")


def test_a_master_that_does_not_answer_is_a_missing_component_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(MissingComponent, match=f"^the Spark master {master} does not answer .*is it running") as raised:
        check_master(master)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("master", ["spark://", "spark://host", "spark://:7077"])
def test_a_master_without_host_or_port_is_refused(master: str) -> None:
    with pytest.raises(MissingComponent, match="is not of the form spark://HOST:PORT"):
        check_master(master)


def test_a_java_that_does_not_start_is_named_with_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        "#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -x' >&2\necho \"Unrecognized option: -x\" >&2\nexit 1\n"
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingComponent, match=r"bin/java does not start: Unrecognized option: -x$"):
        check_java()


@pytest.mark.parametrize(
    "master", ["sparkk://host:7077", "local[x]", "local[0]", "local[2", "mesos://host:5050", "", "yarn-client"]
)
def test_what_is_no_master_is_refused_in_one_line(master: str) -> None:
    with pytest.raises(
        InvalidValue, match=r" is no Spark master; use local\[\*\], local\[N\], spark://HOST:PORT, yarn or"
    ):
        check_master(master)


def test_kubernetes_is_asked_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"k8s://https://127.0.0.1:{server.getsockname()[1]}"
        check_master(master)
        check_master(master.replace("https://", ""))
    with pytest.raises(MissingComponent, match=f"^the Spark master {master} does not answer"):
        check_master(master)


def test_yarn_needs_the_configuration_of_hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(MissingComponent, match="name its directory in HADOOP_CONF_DIR"):
        check_master("yarn")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(MissingComponent, match=r"needs yarn-site\.xml in HADOOP_CONF_DIR"):
        check_master("yarn")
    site = (
        "<configuration><property><name>yarn.resourcemanager.address</name><value>{}</value></property></configuration>"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        (tmp_path / "yarn-site.xml").write_text(site.format(f"127.0.0.1:{server.getsockname()[1]}"))
        check_master("yarn")
    with pytest.raises(MissingComponent, match=r"^the Spark master yarn does not answer"):
        check_master("yarn")
    (tmp_path / "yarn-site.xml").write_text(site.format("${host}:8032"))  # several, or from variables: not asked
    check_master("yarn")


def test_the_driver_is_reached_at_the_address_that_it_uses_towards_the_master() -> None:
    assert driver_address("local[2]") == "127.0.0.1"
    assert driver_address("spark://127.0.0.9:7077") == "127.0.0.1"
    assert bind_address("127.0.0.3") == "127.0.0.3"
    assert bind_address("192.0.2.1") == "0.0.0.0"  # reserved for documentation, so nobody has it


def test_settings_that_spark_would_ignore_are_refused() -> None:
    check_settings({"spark.executor.memory": "1g"})
    with pytest.raises(InvalidValue, match=r"got 'fs\.s3a\.endpoint'; write spark\.hadoop\.fs\.s3a\.endpoint for"):
        check_settings({"fs.s3a.endpoint": "x"})

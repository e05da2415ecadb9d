"""What is checked before Spark is started: which Java there is, and whether a master answers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lavant.core.errors import MissingComponent
from lavant.pipeline.session import check_java, check_master, java_version


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


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "yarn", "k8s://https://10.0.0.1:443"])
def test_only_standalone_masters_are_asked(master: str) -> None:
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

"""The names that applications use, and how bad arguments are answered before anything is sent."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from typing import Any

import pytest
from tests.unit.api_reference import PAGE, rendered

import lavant
from lavant.client.arguments import milliseconds
from lavant.client.bodies import body_bytes, json_of, text_of
from lavant.client.connection.retries import NO_RETRIES
from lavant.client.connection.settings import ConnectionSettings
from lavant.core.errors import InvalidValue

SETTINGS: dict[str, Any] = {"timeout_s": 1.0, "retries": NO_RETRIES}


def test_every_public_name_can_be_imported_and_is_listed() -> None:
    assert sorted(lavant.__all__) == lavant.__all__
    for name in lavant.__all__:
        assert getattr(lavant, name) is not None
        assert name in dir(lavant)
    assert lavant.__version__ == importlib.metadata.version("lavant")


def test_every_class_that_is_public_has_the_name_of_its_export() -> None:
    for name in lavant.__all__:
        value = getattr(lavant, name)
        if isinstance(value, type):
            assert value.__name__ == name


def test_an_import_loads_nothing() -> None:
    code = "import sys, lavant; print([m for m in sys.modules if m.startswith('lavant.') or m == 'msgspec'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_old_name_of_a_subscription_warns() -> None:
    from lavant.client.subscriptions import subscription

    with pytest.warns(DeprecationWarning, match=r"lavant\.Subscription"):
        assert subscription.ClientSubscription is lavant.Subscription


def test_the_environment_names_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("LAVANT_URL", "lavant://queues.example:99")
    monkeypatch.setenv("LAVANT_KEY", "secret")
    monkeypatch.setenv("LAVANT_CA_FILE", str(tmp_path / "missing"))
    found = ConnectionSettings.from_environment("", key="", ca_file=None, **SETTINGS)
    assert (str(found.address), found.token) == ("lavant://queues.example:99", b"secret")
    given = ConnectionSettings.from_environment("lavant://h:1", key="other", ca_file=None, **SETTINGS)
    assert (str(given.address), given.token) == ("lavant://h:1", b"other")
    with pytest.raises(InvalidValue, match="ca_file"):
        ConnectionSettings.from_environment("lavants://h:1", key="", ca_file=None, **SETTINGS)
    for name in ("LAVANT_URL", "LAVANT_KEY", "LAVANT_CA_FILE"):
        monkeypatch.delenv(name)
    assert str(ConnectionSettings.from_environment("", key="", ca_file=None, **SETTINGS).address).endswith(":7324")


@pytest.mark.parametrize("body", [b"\x00", bytearray(b"a"), memoryview(b"a"), "größer", {"a": [1, None]}, [1, 2]])
def test_bodies_arrive_as_they_were_sent(body: Any) -> None:
    sent = body_bytes(body)
    read = json_of(sent) if isinstance(body, dict | list) else text_of(sent) if isinstance(body, str) else sent
    assert read == body


@pytest.mark.parametrize("body", [5, None, 1.5, object(), {1, 2}, {"a": object()}, {("a", 1): 2}])
def test_a_body_of_another_type_is_named(body: Any) -> None:
    with pytest.raises(InvalidValue, match="a message's body"):
        body_bytes(body)


@pytest.mark.parametrize(("body", "read"), [(b"\xff", text_of), (b"{", json_of), (b"\xff", json_of)])
def test_a_body_that_is_something_else_is_shown(body: bytes, read: Any) -> None:
    with pytest.raises(InvalidValue, match="body"):
        read(body)


def test_seconds_are_the_unit_and_milliseconds_warn() -> None:
    assert milliseconds("wait", None, None) is None
    assert milliseconds("wait", 0.25, None) == 250
    with pytest.warns(DeprecationWarning, match="wait_ms is now wait_s"):
        assert milliseconds("wait", None, 250) == 250
    for wrong in (-1, "1", True, float("nan"), 1e12):
        with pytest.raises(InvalidValue, match="wait_s"):
            milliseconds("wait", wrong, None)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="not both"):
        milliseconds("wait", 1, 1000)


def test_the_api_reference_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == rendered(), "run python -m tests.unit.api_reference"

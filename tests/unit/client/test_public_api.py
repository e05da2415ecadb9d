"""The names that applications use, and how bad arguments are answered before anything is sent."""

from __future__ import annotations

import contextlib
import importlib.metadata
import inspect
import pickle
import re
import subprocess
import sys
from typing import Any

import pytest
from tests.unit.api_reference import PAGE, rendered

import lavant
from lavant.client.arguments import milliseconds, seconds
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
    assert {name for name in dir(lavant) if not name.startswith("__")} <= set(lavant.__all__)
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
    assert milliseconds("wait_s", None) is None
    assert milliseconds("wait_s", 0.25) == 250
    for wrong in (-1, "1", True, float("nan"), 1e12):
        with pytest.raises(InvalidValue, match="wait_s"):
            milliseconds("wait_s", wrong)  # type: ignore[arg-type]
    assert seconds("wait", 0.25, None) == 0.25
    with pytest.warns(DeprecationWarning, match="wait_ms is now wait_s"):
        assert seconds("wait", None, 250) == 0.25
    with pytest.raises(InvalidValue, match="not both"):
        seconds("wait", 1, 1000)
    with pytest.raises(InvalidValue, match="wait_ms must be a whole number, got 'soon'"):
        seconds("wait", None, "soon")  # type: ignore[arg-type]


OLD_PARAMETERS = {
    *("Queue.send delay_ms", "Queue.receive visibility_ms", "Queue.receive wait_ms"),
    *("Queue.change_visibility visibility_ms", "NotPublished retry_after_ms"),
}
"""Names of version 0.1, which still work and warn."""
AS_SENT = {"JobDefinition", "NextTask", "TaskDefinition"}
"""What `Workflow.definition` returns: a job type as it is sent to the server."""
OLD_ATTRIBUTES = {"Notification.time_ms", "NotPublished.retry_after_ms"}
_IN_MS = re.compile(r"_ms($|_)")


def reachable() -> dict[str, Any]:
    """What `lavant` exports, and the classes that its annotations name."""
    found: dict[str, Any] = {name: getattr(lavant, name) for name in lavant.__all__ if name != "__version__"}
    found |= {name: kind for name, kind in vars(found.pop("errors")).items() if isinstance(kind, type)}
    new = list(found.values())
    while new:
        value = new.pop()
        known = vars(sys.modules[value.__module__])
        for name in _annotated_with(value):
            kind = known.get(name)
            if isinstance(kind, type) and kind.__module__.startswith("lavant.") and name not in found:
                found[name] = kind
                new.append(kind)
    return found


def _annotated_with(value: Any) -> set[str]:
    public = [each for name, each in inspect.getmembers(value) if name[0] != "_"]
    members = [value, *(getattr(each, "fget", each) for each in public)]
    hints = [str(hint) for each in members for hint in getattr(each, "__annotations__", {}).values()]
    return set(re.findall(r"\w+", " ".join(hints)))


def test_every_time_in_the_public_api_is_in_seconds() -> None:
    """Neither a parameter nor an attribute of anything that a program passes in or gets back is in milliseconds."""
    values = {name: value for name, value in reachable().items() if name not in AS_SENT}
    assert {"AttemptView", "QueueFigures", "Latencies", "Decision"} <= values.keys(), "also what is not exported"
    parameters, attributes = set(), set()
    for name, value in values.items():
        members = inspect.getmembers(value, inspect.isfunction) if isinstance(value, type) else []
        for called, function in [("", value), *((f".{each}", found) for each, found in members if each[0] != "_")]:
            with contextlib.suppress(TypeError, ValueError):  # without a signature
                of = inspect.signature(function).parameters
                parameters |= {f"{name}{called} {each}" for each in of if _IN_MS.search(each)}
        attributes |= {f"{name}.{each}" for each in dir(value) if _IN_MS.search(each) and each[0] != "_"}
    assert {each for each in parameters if not each.startswith("Async")} == OLD_PARAMETERS
    assert attributes == OLD_ATTRIBUTES


def test_old_names_of_an_error_and_a_notification_warn() -> None:
    with pytest.warns(DeprecationWarning, match="retry_after_ms is now retry_after_s"):
        error = lavant.errors.NotPublished("busy", retry_after_ms=20)
    assert error.retry_after_s == pickle.loads(pickle.dumps(error)).retry_after_s == 0.02
    with pytest.warns(DeprecationWarning, match="retry_after_ms is now retry_after_s"):
        assert error.retry_after_ms == 20
    notification: Any = lavant.Notification(
        {}, id="1", time_s=1.5, payload=None, attempt=1, settle=lambda retry_ms, reason: None
    )
    with pytest.warns(DeprecationWarning, match="time_ms is now time_s"):
        assert notification.time_ms == 1500


def test_the_api_reference_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == rendered(), "run python -m tests.unit.api_reference"

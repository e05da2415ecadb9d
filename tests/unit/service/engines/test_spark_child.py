"""Why the process that matches ended: the one line for operators."""

from __future__ import annotations

import pytest

from lavant.service.engines.spark.supervisor import reason_in

GATEWAY = "lavant: PySparkRuntimeError: [JAVA_GATEWAY_EXITED] Java gateway process exited."


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([], None),
        (["", "  "], None),
        (["a", "b"], "b"),
        (["a", "lavant: first", "lavant: last", "Traceback", "b"], "last"),
        (
            [
                "Picked up JAVA_TOOL_OPTIONS: -x",
                "WARNING: y",
                "Unrecognized VM option 'z'",
                "Error: no",
                "Traceback",
                GATEWAY,
            ],
            "PySparkRuntimeError: [JAVA_GATEWAY_EXITED] Java gateway process exited: Unrecognized VM option 'z'",
        ),
        (["Traceback", GATEWAY], "PySparkRuntimeError: [JAVA_GATEWAY_EXITED] Java gateway process exited"),
    ],
)
def test_the_reason_is_what_was_told_last(said: list[str], reason: str | None) -> None:
    assert reason_in(said) == reason

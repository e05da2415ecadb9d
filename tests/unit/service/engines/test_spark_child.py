"""Why the process that matches ended: the one line for operators."""

from __future__ import annotations

import pytest

from lavant.service.engines.spark.supervisor import reason_in


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([], None),
        (["", "  "], None),
        (["a", "b"], "b"),
        (["a", "lavant: first", "lavant: last", "Traceback", "b"], "last"),
    ],
)
def test_the_reason_is_what_was_told_last(said: list[str], reason: str | None) -> None:
    assert reason_in(said) == reason

"""`lavant stream`: the former name of an option."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from lavant.cli import commands


@pytest.mark.parametrize(
    ("options", "scheme"),
    [([], "plain"), (["--scheme", "encrypted"], "encrypted"), (["--engine", "encrypted"], "encrypted")],
)
def test_engine_is_still_understood_as_scheme(monkeypatch: pytest.MonkeyPatch, options: list[str], scheme: str) -> None:
    given: dict[str, Any] = {}

    def stream(spark: Any, **settings: Any) -> Any:
        given.update(settings)
        return SimpleNamespace(
            publications=1, subscriptions=1, seconds=1.0, batches=1, notifications="n", rejected=0, matched_none=False
        )

    session = SimpleNamespace(stop=lambda: None, sparkContext=SimpleNamespace(master="local[1]"))
    monkeypatch.setattr("lavant.pipeline.session.spark_session", lambda *_, **__: session)
    monkeypatch.setattr("lavant.pipeline.stream.driver.stream", stream)
    result = CliRunner().invoke(commands, ["stream", "--subscriptions", "s", "--input", "i", "--output", "o", *options])
    assert (result.exit_code, given["scheme"]) == (0, scheme)

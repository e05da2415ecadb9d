"""Index files: the last ones are kept, and those that have names."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from lavant.broker.matching import PlainMatcher
from lavant.pipeline.tables import indexes
from lavant.pipeline.tables.indexes import NUMBERS, keep_index, keep_registered, known_index


class Session:
    """Stands for a Spark session, of which only the identity matters here."""


def made(key: str) -> Any:
    matcher = PlainMatcher()
    matcher.add([1], ["x > 1"])
    return keep_index(key, [matcher], ids=None, lists=NUMBERS)


def test_registered_indexes_outlive_any_number_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "INDEXES_MAX", 2)
    monkeypatch.setattr(indexes, "_indexes", OrderedDict())
    monkeypatch.setattr(indexes, "_directory", lambda: tmp_path)
    session: Any = Session()
    keep_registered(session, [made("a"), made("b")])
    for other in "cdef":
        made(other)
    assert [key for key in "abcdef" if known_index(key)] == ["a", "b", "f"], "the newest is always there"
    assert len(list(tmp_path.iterdir())) == 3
    keep_registered(session, [made("g")])
    made("h")
    assert [key for key in "abcdefgh" if known_index(key)] == ["g", "h"]
    del session
    made("i")
    assert [key for key in "abcdefghi" if known_index(key)] == ["h", "i"]
    assert len(list(tmp_path.iterdir())) == 2

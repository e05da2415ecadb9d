"""Tables of subscriptions: equal content is equal in any order of rows."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lavant.core.errors import InvalidValue
from lavant.pipeline.tables.subscriptions import in_order, store_of

IDS: dict[str, pa.Array] = {
    "int": pa.array([3, 1, None, 1, 2, 3]),
    "string": pa.array(["b", "a", None, "a", "", "b"]),
    "double": pa.array([1.5, float("nan"), None, float("inf"), 1.5, -1.0]),
    "decimal": pa.array([Decimal(3), Decimal(1), None, Decimal(1), Decimal(2), Decimal(3)]),
    "binary": pa.array([b"b", b"a", None, b"a", b"", b"b"]),
    "struct": pa.array([{"a": 3}, {"a": 1}, None, {"a": None}, {"a": 2}, {"a": 3}]),
    "list": pa.array([[3], [1, 2], None, [], [None], [3]]),
    "map": pa.array([[("a", 1)], [], None, [("b", 1)], [("a", 2)], [("a", 1)]], pa.map_(pa.string(), pa.int64())),
}


@pytest.mark.parametrize("type", list(IDS))
def test_the_order_of_rows_is_not_their_content(type: str) -> None:
    """Neither where many subscriptions have the same filter, nor where they have the same id."""
    rows = pa.table({"id": IDS[type], "filter": ["x > 1", "x > 1", "x > 1", "x > 2", "x > 2", "x > 1"]})
    random = Random(type)
    made = [in_order(rows.take(random.sample(range(6), 6))) for _ in range(12)]
    assert {repr(each.to_pylist()) for each in made} == {repr(made[0].to_pylist())}
    assert sorted(map(repr, made[0].to_pylist())) == sorted(map(repr, rows.to_pylist()))


@pytest.mark.parametrize("given", [None, 7, [("a", "x > 1")], {"a": "x > 1"}])
def test_what_holds_no_subscriptions_is_one_line(given: Any) -> None:
    with pytest.raises(InvalidValue, match=f"or the name of a table, got a {type(given).__name__}$"):
        store_of(given)

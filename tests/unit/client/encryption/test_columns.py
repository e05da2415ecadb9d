"""Publications in three forms give one array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lavant.client.encryption import NumericAttribute, Schema
from lavant.client.encryption.columns import values_of
from lavant.core.errors import InvalidValue
from lavant.core.ids import PublicationId
from lavant.core.publications.publication import Publication

SCHEMA = Schema.of(NumericAttribute("price", 0, 1000, 0.01), NumericAttribute("volume", 0, 10_000_000, 1))


def test_rows_columns_and_publications_give_the_same_values() -> None:
    rows: list[dict[str, Any]] = [{"volume": 7, "price": 1.5, "symbol": "IBM"}, {"price": 2, "volume": 8}]
    columns: dict[str, Any] = {"price": np.array([1.5, 2.0]), "volume": [7, 8], "symbol": ["IBM", "YHOO"]}
    publications = [Publication(id=PublicationId(f"p{i}"), attributes=row) for i, row in enumerate(rows)]
    expected = [[1.5, 7.0], [2.0, 8.0]]
    assert values_of(SCHEMA, rows)[0].tolist() == expected
    assert values_of(SCHEMA, columns)[0].tolist() == expected
    values, ids = values_of(SCHEMA, publications)
    assert values.tolist() == expected
    assert ids == ("p0", "p1")


def test_no_publications_are_an_empty_array() -> None:
    assert values_of(SCHEMA, [])[0].shape == (0, 2)
    assert values_of(SCHEMA, {"price": [], "volume": []})[0].shape == (0, 2)


@pytest.mark.parametrize(
    ("publications", "message"),
    [
        ([{"price": 1, "volume": 2}, {"price": 1}], "publication 1 has no attribute 'volume'; .* carries every"),
        ([{"price": "1", "volume": 2}], "'price' of publication 0 must be a number, got '1'"),
        ([{"price": True, "volume": 2}], "'price' of publication 0 must be a number, got True"),
        ({"price": [1.0]}, r"no column 'volume' among \['price'\]"),
        ({"price": [1.0], "volume": [1, 2]}, "one length, got {'price': 1, 'volume': 2}"),
        ({"price": ["a"], "volume": [1]}, "'price' must be a flat array of numbers"),
        ({"price": [[1.0]], "volume": [1]}, "of 2 axes"),
        ({"price": [True], "volume": [1]}, "got bool"),
    ],
)
def test_a_publication_that_lacks_a_number_is_refused(publications: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        values_of(SCHEMA, publications)

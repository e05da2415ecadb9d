"""Encrypted subscriptions and publications as tables, for files that a server reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lavant.broker.filters import Filter
from lavant.client.encryption.key import Key
from lavant.core.errors import InvalidValue


def encrypted_subscriptions(key: Key, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Columns `id` and `tests`, a list of vectors, from rows with `id` and `filter`."""
    filters = []
    for row in rows:
        try:
            filters.append(Filter.parse(row["filter"]))
        except InvalidValue as error:
            raise InvalidValue(f"subscription {row['id']}: {error}") from None
    tests = key.encrypt_filters(filters).tests
    return pa.table({"id": pa.array([row["id"] for row in rows], pa.int64()), "tests": tests.tolist()})


def encrypted_publications(key: Key, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Columns `@id` and `@point`, a vector, from rows of attributes with an optional `@id`."""
    plain = [{name: value for name, value in row.items() if not name.startswith("@")} for row in rows]
    points = key.encrypt_publications(plain).points
    ids = pa.array([str(row.get("@id", "")) for row in rows], pa.string())
    return pa.table({"@id": ids, "@point": points.tolist()})

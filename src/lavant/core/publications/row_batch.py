"""Publications by row with columns on demand, for batches of one or a few publications.

Arrow columns cost the same for one publication as for hundreds, and all are built. Here a column is built when a filter
needs it, and the Arrow form only when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from math import nan

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.batch import PublicationBatch, StringColumn
from lavant.core.publications.columns import columns_of_rows

_NUMBERS = frozenset((int, float))


class RowBatch(PublicationBatch):
    """Trusts its caller: attributes are checked, there is no envelope, and no value is None.

    >>> batch = RowBatch([{"symbol": "YHOO", "volume": 300}, {"symbol": "IBM"}])
    >>> batch.numbers("volume"), batch.to_dicts()[1]
    (array([300.,  nan]), {'symbol': 'IBM'})
    """

    def __init__(self, rows: Sequence[Mapping[str, AttributeValue]]) -> None:
        self._rows = rows
        self._numbers: dict[str, NDArray[np.float64] | None] = {}
        self._strings: dict[str, StringColumn | None] = {}

    @cached_property
    def records(self) -> pa.RecordBatch:
        return columns_of_rows(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def numbers(self, name: str) -> NDArray[np.float64] | None:
        try:
            return self._numbers[name]
        except KeyError:
            values = [row.get(name) for row in self._rows]
            kinds = set(map(type, values))
            if kinds and kinds <= _NUMBERS:
                column = np.array(values, np.float64)
            elif kinds & _NUMBERS:
                column = np.array([value if type(value) in _NUMBERS else nan for value in values], np.float64)
            else:
                column = None
            self._numbers[name] = column
            return column

    def booleans(self, name: str) -> NDArray[np.float64] | None:
        values = [row.get(name) for row in self._rows]
        if bool not in set(map(type, values)):
            return None
        return np.array([value if type(value) is bool else nan for value in values], np.float64)

    def presence(self, name: str) -> NDArray[np.float64]:
        return np.array([name in row for row in self._rows], np.float64)

    def strings(self, name: str) -> StringColumn | None:
        try:
            return self._strings[name]
        except KeyError:
            column = self._strings[name] = self._encode_strings(name)
            return column

    def _encode_strings(self, name: str) -> StringColumn | None:
        codes: dict[str, int] = {}
        of_row = [
            codes.setdefault(value, len(codes)) if isinstance(value := row.get(name), str) else -1 for row in self._rows
        ]
        if not codes:
            return None
        texts = [text.encode() for text in codes]
        offsets = np.fromiter(accumulate(map(len, texts), initial=0), np.int64, len(texts) + 1)
        return StringColumn(np.array(of_row, np.int32), offsets, np.frombuffer(b"".join(texts), np.uint8))

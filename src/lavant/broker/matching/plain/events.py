"""A batch as a segment's search sees it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Events(NamedTuple):
    """Numbers in place of attributes: values, cells of bitmaps, and strings where patterns need them."""

    values: NDArray[np.float64]
    """By publication and dimension: a row's check reads several values of one publication."""
    cells: NDArray[np.uint8]
    """By width of cells, dimension and publication; empty if the segment has no bitmaps."""
    text: NDArray[np.int32]
    """By dimension and publication, the string's number in `text_start`; empty if the segment has no patterns."""
    text_start: NDArray[np.int64]
    text_end: NDArray[np.int64]
    text_data: NDArray[np.uint8]

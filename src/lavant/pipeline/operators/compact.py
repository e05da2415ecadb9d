"""Arrays on their way between tasks, in as few bytes as are quickly made: gaps between ids, and narrow integers.

A byte that a match task sends is copied half a dozen times between Python, Java and shuffle files before an exit task
has it. That costs more than all the arithmetic here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching import Matches
from lavant.broker.matching.interface import Ids
from lavant.core.kernels.kernels import frozen, kernel

GAP_BYTES_MAX = 5
"""Of one id."""


def narrow(values: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """The same values in the narrowest unsigned type.

    >>> narrow(np.array([1, 256], np.uint32)).dtype
    dtype('uint16')
    """
    return values.astype(np.min_scalar_type(int(values.max(initial=0))), copy=False)


def encode_ids(matches: Matches) -> NDArray[np.uint8]:
    """The ids of all publications: each as its distance from the one before, the first from zero.

    Lists are made of ascending ones, one for each slice, so most distances are small. Ids whose distances take as much
    room as they do are left as they are.
    """
    data = np.empty(GAP_BYTES_MAX * len(matches.ids), np.uint8)
    size = _encode_gaps(frozen(matches.offsets), frozen(matches.ids), data)
    return data[:size] if size < matches.ids.nbytes else matches.ids.view(np.uint8)


def decode_ids(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> Ids:
    """The ids of lists that begin at these offsets.

    >>> offsets, ids = np.array([0, 2, 3]), np.array([7, 3_000_000_000, 1], np.uint32)
    >>> decode_ids(offsets, encode_ids(Matches(offsets, ids)))
    array([         7, 3000000000,          1], dtype=uint32)
    """
    if len(data) == 4 * offsets[-1]:
        return data.view(np.uint32)
    ids = np.empty(offsets[-1], np.uint32)
    _decode_gaps(frozen(offsets), frozen(data), ids)
    return ids


@kernel
def _encode_gaps(offsets: NDArray[np.int64], ids: NDArray[np.uint32], out: NDArray[np.uint8]) -> int:
    """Signed distances, zigzag-coded into 7 bits of each byte, the lowest first; returns the number of bytes."""
    place = np.uint64(0)
    for i in range(len(offsets) - 1):
        last = np.int64(0)
        for k in range(offsets[i], offsets[i + 1]):
            gap = np.int64(ids[k]) - last
            last += gap
            left = np.uint64(gap << 1) ^ np.uint64(gap >> 63)
            while left >= np.uint64(128):
                out[place] = np.uint8(left & np.uint64(127) | np.uint64(128))
                left >>= np.uint64(7)
                place += np.uint64(1)
            out[place] = np.uint8(left)
            place += np.uint64(1)
    return int(place)


@kernel
def _decode_gaps(offsets: NDArray[np.int64], data: NDArray[np.uint8], out: NDArray[np.uint32]) -> None:
    place = np.uint64(0)
    for i in range(len(offsets) - 1):
        last = np.int64(0)
        for k in range(offsets[i], offsets[i + 1]):
            byte = np.uint64(data[place])
            place += np.uint64(1)
            value = byte & np.uint64(127)
            shift = np.uint64(7)
            while byte >= np.uint64(128):
                byte = np.uint64(data[place])
                place += np.uint64(1)
                value |= (byte & np.uint64(127)) << shift
                shift += np.uint64(7)
            last += np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
            out[k] = last

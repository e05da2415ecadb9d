"""The kernels of encrypted matching: which of many subscriptions do a few publications match?

`survey` does nearly all the work, in single precision and without branches: for a block of `LANES` subscriptions and a
publication, the lowest of the scalar products of all tests. A block stays in the first-level cache while all
publications of a tile are tested; for each test, lanes are adjacent in memory, so one vector instruction serves 8 or 16
subscriptions. Where a block's lowest product is above minus the guard band, it is a *candidate*.

    blocks[block, test, dimension, lane]   ·   points[publication, dimension]   ─►   lowest[lane]   ─►   candidates

`decide` goes once over the candidates (1 % of the pairs, say): it drops padding and removed rows, and decides those
within the guard band again in double precision.

The number of dimensions must be known at compile time, or the loops are not unrolled and not vectorised. It is passed
as the length of the tuple `dims`, whose values are not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numba
import numba.extending
import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from lavant.broker.matching.encrypted.precision import TOLERANCE
from lavant.core.kernels.kernels import fast_kernel, kernel

LANES = 128
"""Subscriptions in a block: 20 KB for 4 attributes, which leaves room in 32 KB of cache for the publications. Smaller
blocks make the loops short for their overhead (64 are 10 % slower).
"""

FOUR_DIMENSIONS_MAX = 6
"""Publications that share the load of a test's vector: four up to so many dimensions, beyond which LLVM no longer
unrolls (and so no longer vectorises) their loop; then two.
"""

Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]
Dims = tuple[int, ...]


def _lower(typing_context: Any, a: Any, b: Any) -> Any:
    """The lower of two singles, neither of them NaN, in one instruction.

    Python's `min` is a branch, which LLVM turns into masked stores: five times slower where there is no AVX-512.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        single = ir.FloatType()
        minimum = builder.module.declare_intrinsic("llvm.minnum", [single], ir.FunctionType(single, [single, single]))
        return builder.call(minimum, arguments, fastmath=("nnan",))

    return numba.float32(numba.float32, numba.float32), generate


lower = cast(Callable[[np.float32, np.float32], np.float32], numba.extending.intrinsic(_lower))


@fast_kernel
def lowest_of_four(block: Singles, points: Singles, first: int, dims: Dims, lowest: Singles) -> None:
    """For publications first … first + 3: the lowest scalar product of all tests, by lane."""
    for lane in range(LANES):
        lowest[0, lane] = lowest[1, lane] = lowest[2, lane] = lowest[3, lane] = np.float32(2.0)
    for test in range(block.shape[0]):
        for lane in range(LANES):
            a = b = c = d = np.float32(0.0)
            for i in range(len(dims)):
                q = block[test, i, lane]
                a += q * points[first, i]
                b += q * points[first + 1, i]
                c += q * points[first + 2, i]
                d += q * points[first + 3, i]
            lowest[0, lane] = lower(lowest[0, lane], a)
            lowest[1, lane] = lower(lowest[1, lane], b)
            lowest[2, lane] = lower(lowest[2, lane], c)
            lowest[3, lane] = lower(lowest[3, lane], d)


@fast_kernel
def lowest_of_two(block: Singles, points: Singles, first: int, second: int, dims: Dims, lowest: Singles) -> None:
    """For two publications: the lowest scalar product of all tests, by lane."""
    for lane in range(LANES):
        lowest[0, lane] = lowest[1, lane] = np.float32(2.0)
    for test in range(block.shape[0]):
        for lane in range(LANES):
            a = b = np.float32(0.0)
            for i in range(len(dims)):
                q = block[test, i, lane]
                a += q * points[first, i]
                b += q * points[second, i]
            lowest[0, lane] = lower(lowest[0, lane], a)
            lowest[1, lane] = lower(lowest[1, lane], b)


@fast_kernel
def survey(
    blocks: Singles,
    start: int,
    points: Singles,
    dims: Dims,
    guard: np.float32,
    lowest: Singles,
    flags: NDArray[np.uint8],
    flags_by_eight: NDArray[np.uint64],
    publication: NDArray[np.int32],
    row: NDArray[np.int32],
    product: Singles,
) -> tuple[int, int]:
    """Find candidates from block `start` on until the output might overflow: (next block, number of candidates)."""
    found = 0
    publications = points.shape[0]
    for block in range(start, blocks.shape[0]):
        if found + publications * LANES + 8 > len(row):
            return block, found
        first = int(
            np.int64(0)
        )  # the literal 0 has a type of its own, and the functions called below would be compiled twice
        while first < publications:
            if len(dims) <= FOUR_DIMENSIONS_MAX and first + 4 <= publications:
                together = 4
                lowest_of_four(blocks[block], points, first, dims, lowest)
            else:
                together = min(2, publications - first)  # the last one may be paired with itself
                lowest_of_two(blocks[block], points, first, first + together - 1, dims, lowest)
            for k in range(together):
                for lane in range(LANES):
                    flags[lane] = lowest[k, lane] >= -guard
                for eight in range(LANES // 8):  # one comparison skips eight lanes, nine times in ten
                    if flags_by_eight[eight] != 0:
                        for lane in range(
                            8 * eight, 8 * eight + 8
                        ):  # always written, kept by advancing the step: no branch
                            publication[found] = first + k
                            row[found] = block * LANES + lane
                            product[found] = lowest[k, lane]
                            found += flags[lane]
            first += together
    return blocks.shape[0], found


@kernel
def holds_in_double(tests: Doubles, point: Doubles) -> bool:
    """Whether no test's scalar product with the point is below the tolerance."""
    point_square = 0.0
    for i in range(len(point)):
        point_square += point[i] * point[i]
    for test in range(tests.shape[0]):
        product = square = 0.0
        for i in range(len(point)):
            product += tests[test, i] * point[i]
            square += tests[test, i] * tests[test, i]
        if product < -TOLERANCE * math.sqrt(square) * math.sqrt(point_square):
            return False
    return True


@kernel
def decide(
    publication: NDArray[np.int32],
    row: NDArray[np.int32],
    product: Singles,
    guard: np.float32,
    tests: Doubles,
    points: Doubles,
    dead: NDArray[np.bool_],
    ids: NDArray[np.uint32],
    counts: NDArray[np.int64],
    start: int,
    out_publication: NDArray[np.int32],
    out_id: NDArray[np.uint32],
) -> tuple[int, int]:
    """Keep the candidates that match: (how many matched, how many took the double path). Counts by publication.

    The tile's publications are number `start` and following of the batch.
    """
    kept = 0
    doubted = 0
    for i in range(len(row)):
        if row[i] >= len(ids) or (len(dead) > 0 and dead[row[i]]):
            continue
        if product[i] < guard:
            doubted += 1
            if not holds_in_double(tests[row[i]], points[publication[i]]):
                continue
        counts[publication[i]] += 1
        out_publication[kept] = start + publication[i]
        out_id[kept] = ids[row[i]]
        kept += 1
    return kept, doubted


@kernel
def place(
    publication: NDArray[np.int32], id: NDArray[np.uint32], cursor: NDArray[np.int64], out: NDArray[np.uint32]
) -> None:
    """Write each id at its publication's cursor, and advance the cursor."""
    for i in range(len(publication)):
        out[cursor[publication[i]]] = id[i]
        cursor[publication[i]] += 1

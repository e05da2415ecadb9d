"""Encrypted matching is plaintext matching, for every value of the grid, on the bounds as beside them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lavant.broker.filters import Filter
from lavant.broker.matching.encrypted.matcher import EncryptedMatcher
from lavant.broker.matching.encrypted.precision import TOLERANCE
from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.client.encryption.ranges import Grid

Doubles = NDArray[np.float64]

GRIDS = [(0, 10, 1), (0, 1000, 0.01), (-180, 180, 1e-5), (-0.3, 0.3, 0.1), (1e6, 1e6 + 1000, 1e-6), (0, 1, 1e-9)]
COMPARISONS = ["<", "<=", ">", ">=", "="]


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    grids = draw(st.lists(st.sampled_from(GRIDS), min_size=1, max_size=6))
    return Schema.of(*(NumericAttribute(f"a{i}", *grid) for i, grid in enumerate(grids)))


def grid_values(attribute: NumericAttribute) -> st.SearchStrategy[float]:
    ticks = attribute.ticks()
    near_the_ends = st.integers(0, min(3, ticks.steps))
    points = st.one_of(st.integers(0, ticks.steps), near_the_ends, near_the_ends.map(lambda k: ticks.steps - k))
    return points.map(lambda k: (ticks.first + k * ticks.step) / ticks.denominator)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, list[dict[str, float]], list[str], int]:
    """Publications and filters whose numbers come from one small pool, so that many values are on bounds."""
    schema = draw(schemas())
    pools = {a.name: draw(st.lists(grid_values(a), min_size=1, max_size=4)) for a in schema.attributes}
    number = {name: st.sampled_from(pool) for name, pool in pools.items()}
    publications = draw(st.lists(st.fixed_dictionaries(number), min_size=1, max_size=6))
    predicate = st.sampled_from(schema.names).flatmap(
        lambda name: st.tuples(st.just(name), st.sampled_from(COMPARISONS), number[name])
    )
    conjunctions = draw(st.lists(st.lists(predicate, min_size=1, max_size=5), min_size=1, max_size=6))
    texts = [" and ".join(f"{name} {sign} {value!r}" for name, sign, value in each) for each in conjunctions]
    return schema, publications, texts, draw(st.integers(0, 2**32))


@given(cases())
def test_filters_match_encrypted_what_they_match_in_the_clear(
    case: tuple[Schema, list[dict[str, float]], list[str], int],
) -> None:
    schema, publications, texts, seed = case
    filters = [parsed for text in texts if (parsed := Filter.parse(text)).conjunctions]
    key = Key.generate(schema, entropy=np.random.default_rng(seed).bytes)
    matcher = EncryptedMatcher()
    matcher.add(np.arange(len(filters), dtype=np.uint32), key.encrypt_filters(filters))
    matches = matcher.match(key.encrypt_publications(publications))
    for number, publication in enumerate(publications):
        expected = [i for i, wanted in enumerate(filters) if wanted.matches(dict(publication))]
        assert sorted(matches.of(number).tolist()) == expected


def on_and_beside_bounds(
    schema: Schema, random: np.random.Generator, filters: int, publications: int
) -> tuple[Doubles, Doubles, Doubles]:
    """Ranges by random bounds, open, closed and none; values of which half are a bound of some filter."""
    grid = Grid(schema)
    shape = (filters, len(schema.names))
    ends = np.sort(random.integers(0, grid.steps.astype(np.int64) + 1, (2, *shape)), axis=0).astype(np.float64)
    ends[1] = np.where(random.random(shape) < 0.1, ends[0], ends[1])
    low, high = grid.values(ends[0]), np.nextafter(grid.values(ends[1]), np.inf)
    low = np.where(random.random(shape) < 0.3, np.nextafter(low, np.inf), low)
    high = np.where(random.random(shape) < 0.3, grid.values(ends[1]), high)
    low = np.where(random.random(shape) < 0.4, -math.inf, low)
    high = np.where(random.random(shape) < 0.4, math.inf, high)
    points = random.integers(0, grid.steps.astype(np.int64) + 1, (publications, shape[1])).astype(np.float64)
    picked = ends[random.integers(0, 2, points.shape), random.integers(0, filters, points.shape), np.arange(shape[1])]
    return low, high, grid.values(np.where(random.random(points.shape) < 0.5, picked, points))


@pytest.mark.parametrize("attributes", [1, 2, 4, 5, 6, 16])
@pytest.mark.parametrize("grid", GRIDS)
def test_no_match_is_lost_and_none_invented_in_many_random_pairs(
    attributes: int, grid: tuple[float, float, float]
) -> None:
    schema = Schema.of(*(NumericAttribute(f"a{i}", *grid) for i in range(attributes)))
    random = np.random.default_rng(attributes)
    low, high, values = on_and_beside_bounds(schema, random, filters=2000, publications=200)
    expected = ((values[:, None] >= low) & (values[:, None] < high)).all(axis=2)
    assert expected.any()
    for _ in range(3):
        key = Key.generate(schema, entropy=random.bytes)
        matcher = EncryptedMatcher()
        matcher.add(np.arange(2000, dtype=np.uint32), key.encrypt_ranges(low, high))
        matches = matcher.match(key.encrypt_publications(dict(zip(schema.names, values.T, strict=True))))
        found = np.zeros(expected.shape, np.bool_)
        found[np.repeat(np.arange(200), np.diff(matches.offsets)), matches.ids] = True
        assert np.array_equal(found, expected)
        assert len(matches.ids) == expected.sum()


@pytest.mark.parametrize("attributes", [1, 4, 16])
@pytest.mark.parametrize("grid", GRIDS)
def test_no_grid_value_is_near_a_bound_when_measured_by_the_tolerance(
    attributes: int, grid: tuple[float, float, float]
) -> None:
    schema = Schema.of(*(NumericAttribute(f"a{i}", *grid) for i in range(attributes)))
    random = np.random.default_rng(attributes)
    low, high, values = on_and_beside_bounds(schema, random, filters=300, publications=100)
    for _ in range(10):
        key = Key.generate(schema, entropy=random.bytes)
        tests = key.encrypt_ranges(low, high).tests
        points = key.encrypt_publications(dict(zip(schema.names, values.T, strict=True))).points
        lengths = np.linalg.norm(tests, axis=2)[None] * np.linalg.norm(points, axis=1)[:, None, None]
        relative = np.einsum("rti,pi->prt", tests, points) / lengths
        assert np.abs(relative).min() > 4 * TOLERANCE


finite = st.floats(-1e6, 1e6).map(lambda x: x if abs(x) > 1e-6 else 1.0)


@given(
    st.integers(2, 8).flatmap(
        lambda dimensions: st.tuples(
            st.lists(st.lists(finite, min_size=dimensions, max_size=dimensions), min_size=1, max_size=5),
            st.lists(st.lists(finite, min_size=dimensions, max_size=dimensions), min_size=1, max_size=5),
        )
    )
)
def test_the_matcher_decides_as_exact_arithmetic_does_beyond_the_tolerance(
    vectors: tuple[list[list[float]], list[list[float]]],
) -> None:
    tests, points = np.array(vectors[0]), np.array(vectors[1])
    matcher = EncryptedMatcher()
    matcher.add(np.arange(len(tests), dtype=np.uint32), EncryptedFilters(tests[:, None, :]))
    matches = matcher.match(EncryptedBatch(points))
    for p, point in enumerate(points):
        for t, test in enumerate(tests):
            product = math.fsum(math.fsum(_exact_product(a, b)) for a, b in zip(test, point, strict=True))
            relative = product / (np.linalg.norm(test) * np.linalg.norm(point))
            if relative >= 0:
                assert t in matches.of(p)
            elif relative < -2e-12:
                assert t not in matches.of(p)


def _exact_product(a: float, b: float) -> tuple[float, float]:
    """The product and its rounding error, by Dekker and Veltkamp."""
    high_a, high_b = _split(a), _split(b)
    low_a, low_b = a - high_a, b - high_b
    product = a * b
    return product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


def _split(a: float) -> float:
    c = 134217729.0 * a
    return c - (c - a)

"""Random matrices: orthogonal where they should be, well conditioned where they must be."""

from __future__ import annotations

import secrets

import numpy as np
import pytest

from lavant.client.encryption.entropy import log_uniform, normal, permutations, uniform
from lavant.client.encryption.key import CONDITION_MAX, condition, random_matrix, random_orthogonal


@pytest.mark.parametrize("dimensions", [2, 3, 5, 17])
def test_orthogonal_factors_are_orthogonal(dimensions: int) -> None:
    q = random_orthogonal(secrets.token_bytes, dimensions)
    assert np.allclose(q @ q.T, np.eye(dimensions), atol=1e-14)


def test_every_key_is_well_conditioned_and_no_two_are_alike() -> None:
    matrices = [random_matrix(secrets.token_bytes, 5) for _ in range(500)]
    conditions = [condition(matrix) for matrix in matrices]
    assert max(conditions) <= CONDITION_MAX
    assert min(conditions) > 1.01, "a key that only rotates would keep all distances"
    assert len({matrix.tobytes() for matrix in matrices}) == 500


def test_random_numbers_have_the_distribution_they_claim() -> None:
    entropy = np.random.default_rng(3).bytes
    flat = uniform(entropy, 100_000)
    assert flat.min() >= 0.0
    assert flat.max() < 1.0
    assert abs(flat.mean() - 0.5) < 0.005
    bell = normal(entropy, 100_000)
    assert abs(bell.mean()) < 0.02
    assert abs(bell.std() - 1.0) < 0.02
    scales = np.log2(log_uniform(entropy, 0.25, 4.0, 100_000))
    assert abs(scales.mean()) < 0.02
    assert -2.0 <= scales.min() < scales.max() <= 2.0


def test_orders_are_permutations_that_put_everything_everywhere() -> None:
    orders = permutations(np.random.default_rng(3).bytes, 8000, 8)
    assert (np.sort(orders, axis=1) == np.arange(8)).all()
    for place in range(8):
        assert np.bincount(orders[:, place], minlength=8).min() > 800

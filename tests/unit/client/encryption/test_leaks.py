"""What docs/encryption.md admits is true: the attacks that it describes are carried out here, without the key."""

from __future__ import annotations

import itertools

import numpy as np

from lavant.client.encryption import Key, NumericAttribute, Schema

PRICE, VOLUME = NumericAttribute("price", 0, 100, 0.01), NumericAttribute("volume", 0, 1_000_000, 1)


def random_columns(seed: int, count: int) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    random = np.random.default_rng(seed)
    return {"price": random.uniform(0, 100, count).round(2), "volume": random.uniform(0, 1e6, count).round()}


def test_d_plus_two_known_publications_give_the_key_up_to_scale_and_with_it_everything() -> None:
    key = Key.generate(Schema.of(PRICE, VOLUME))
    known = random_columns(1, 4)
    plain = np.column_stack([known["price"] / 50 - 1, known["volume"] / 5e5 - 1, np.ones(4)])
    seen = key.encrypt_publications(known).points
    # Points 0 … 2 are a basis; the fourth fixes their scales against each other.
    weights_plain = np.linalg.solve(plain[:3].T, plain[3])
    weights_seen = np.linalg.solve(seen[:3].T, seen[3])
    matrix = np.linalg.solve(plain[:3] * weights_plain[:, None], seen[:3] * weights_seen[:, None])
    secret = random_columns(2, 100)
    recovered = key.encrypt_publications(secret).points @ np.linalg.inv(matrix)
    price = (recovered[:, 0] / recovered[:, 2] + 1) * 50
    assert np.allclose(price, secret["price"], atol=0.005)


def test_filters_alone_give_every_value_up_to_an_unknown_offset_and_unit() -> None:
    key = Key.generate(Schema.of(PRICE, VOLUME))
    low = np.column_stack(list(random_columns(3, 20).values())) * 0.5
    tests = key.encrypt_ranges(low, low * 1.5 + 1).tests.reshape(-1, 3)
    # All tests of one attribute lie in a plane. The two planes meet where the extension by 1 lies.
    planes: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = []
    for a, b in itertools.combinations(tests, 2):
        normal = np.cross(a, b)
        normal /= np.linalg.norm(normal)
        if np.sum(np.abs(tests @ normal) < 1e-9 * np.linalg.norm(tests, axis=1)) >= 10 and not any(
            abs(normal @ plane) > 1 - 1e-9 for plane in planes
        ):
            planes.append(normal)
    assert len(planes) == 2
    one = np.cross(planes[0], planes[1])
    secret = random_columns(4, 200)
    points = key.encrypt_publications(secret).points
    for plane in planes:
        within = next(test for test in tests if abs(test @ plane) < 1e-9 * np.linalg.norm(test))
        guess = (points @ within) / (points @ one)
        likeness = [abs(np.corrcoef(guess, values)[0, 1]) for values in secret.values()]
        assert max(likeness) > 1 - 1e-9

"""Keys: what they encrypt, how they are kept, and what they refuse."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path

import numpy as np
import pytest

from lavant.broker.filters import Filter
from lavant.broker.matching.encrypted.matcher import EncryptedMatcher
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.client.encryption.key import KeyFile
from lavant.core.errors import InvalidValue

SCHEMA = Schema.of(NumericAttribute("price", 0, 100, 0.01), NumericAttribute("volume", 0, 1_000_000, 1))
PUBLICATION = {"price": 10.07, "volume": 5000}


def matching(key: Key, text: str, publication: dict[str, float]) -> bool:
    matcher = EncryptedMatcher()
    matcher.add(np.array([1], np.uint32), key.encrypt_filters([Filter.parse(text)]))
    return len(matcher.match(key.encrypt_publications([publication])).ids) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price >= 10.07", True),
        ("price > 10.07", False),
        ("price <= 10.07", True),
        ("price < 10.07", False),
        ("price = 10.07", True),
        ("price = 10.08", False),
        ("price > 10.06 and price < 10.08 and volume >= 5000 and volume <= 5000", True),
        ("price > 10.06 and volume > 5000", False),
        ("volume < 5001", True),
        ("price >= -5", True),
        ("price > 1000", False),
        ("price < 0", False),
        ("price <= 100 and volume <= 1000000", True),
    ],
)
def test_encrypted_comparisons_are_those_of_the_plaintext_on_the_bound_too(text: str, expected: bool) -> None:
    for _ in range(20):
        assert matching(Key.generate(SCHEMA), text, PUBLICATION) is expected
    assert Filter.parse(text).matches(dict(PUBLICATION)) is expected


def test_a_value_off_the_grid_is_matched_as_its_nearest_grid_point() -> None:
    key = Key.generate(SCHEMA)
    assert matching(key, "price = 10.07", {"price": 10.0749, "volume": 1})
    assert not matching(key, "price > 10.07", {"price": 10.0749, "volume": 1})


def test_two_encryptions_of_one_publication_differ_in_length_and_not_in_direction() -> None:
    first, second = Key.generate(SCHEMA).encrypt_publications([PUBLICATION, PUBLICATION]).points
    assert not np.allclose(first, second)
    assert np.allclose(first / np.linalg.norm(first), second / np.linalg.norm(second)), (
        "see docs/encryption.md: equality"
    )


def test_the_same_filter_twice_has_other_vectors_in_another_order() -> None:
    key = Key.generate(SCHEMA)
    low = np.full((200, 2), [10.0, -math.inf])
    tests = key.encrypt_ranges(low, np.full((200, 2), math.inf)).tests
    assert len(np.unique(tests.reshape(-1, 3), axis=0)) == 800
    constrained = tests / np.linalg.norm(tests, axis=2, keepdims=True)
    places = [int(np.argmin(np.linalg.norm(constrained[i] - constrained[0, 0], axis=1))) for i in range(200)]
    assert set(places) == {0, 1, 2, 3}


def test_what_a_filter_does_not_constrain_has_the_same_shape_as_what_it_does() -> None:
    key = Key.generate(SCHEMA)
    texts = ["price >= 0", "price > 5", "price > 5 and price < 6 and volume > 1 and volume < 9"]
    assert key.encrypt_filters([Filter.parse(text) for text in texts]).tests.shape == (3, 4, 3)


def test_bounds_out_of_range_are_never_twice_the_same() -> None:
    key = Key.generate(SCHEMA)
    nothing = np.full((100, 2), math.inf)
    tests = key.encrypt_ranges(-nothing, nothing).tests.reshape(-1, 3)
    directions = tests / np.linalg.norm(tests, axis=1, keepdims=True)
    assert len(np.unique(directions.round(12), axis=0)) == 400


def test_a_saved_key_is_its_owners_only_and_reads_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    key = Key.generate(SCHEMA)
    key.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Key.load(path)
    assert again.schema == key.schema
    assert np.array_equal(again._matrix, key._matrix)
    matcher = EncryptedMatcher()
    matcher.add(np.array([1], np.uint32), key.encrypt_filters([Filter.parse("price = 10.07")]))
    assert len(matcher.match(again.encrypt_publications([PUBLICATION])).ids) == 1


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    Key.generate(SCHEMA).save(path)
    before = path.read_bytes()
    with pytest.raises(InvalidValue, match="exists; a key is never overwritten"):
        Key.generate(SCHEMA).save(path)
    assert path.read_bytes() == before


def test_what_is_printed_shows_no_secret() -> None:
    key = Key.generate(SCHEMA)
    shown = repr(key) + str(key) + repr(KeyFile(SCHEMA, key._matrix.tolist()))
    assert shown == "Key(of price, volume)" * 2 + "KeyFile(of price, volume)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "lavant-aspe-key-9"}, "has format 'lavant-aspe-key-9', expected"),
        ({"matrix": [[1.0, 0.0], [0.0, 1.0]]}, "matrix of 3 × 3, got one of 2 × 2"),
        ({"matrix": [[1.0, 0.0, 0.0], [0.0, 1.0], [0.0]]}, "rows differ in length"),
        ({"matrix": []}, "rows differ in length"),
        ({"matrix": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.01]]}, "condition 100, above 16"),
        ({"matrix": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]}, "condition inf"),
        ({"matrix": "secret"}, "is not a key of Lavant: Expected `array`"),
        ({"schema": {"attributes": []}}, "is not a key of Lavant: a schema has between"),
    ],
)
def test_a_damaged_key_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    Key.generate(SCHEMA).save(tmp_path / "key.json")
    content = json.loads((tmp_path / "key.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps({**content, **change}))
    with pytest.raises(InvalidValue, match=message):
        Key.load(tmp_path / "other.json")


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_bytes(b"\xff\x00 not json")
    with pytest.raises(InvalidValue, match="is not a key of Lavant"):
        Key.load(tmp_path / "key.json")


def test_bounds_of_another_number_of_attributes_are_refused() -> None:
    key = Key.generate(SCHEMA)
    with pytest.raises(InvalidValue, match=r"filters × 2 attributes \(price, volume\), got shape \(1, 3\)"):
        key.encrypt_ranges(np.zeros((1, 3)), np.zeros((1, 3)))
    with pytest.raises(InvalidValue, match=r"low and high .* got 1 and 2 filters"):
        key.encrypt_ranges(np.zeros((1, 2)), np.zeros((2, 2)))
    with pytest.raises(InvalidValue, match="nan"):
        key.encrypt_ranges([[math.nan, 0.0]], [[1.0, 1.0]])


def test_no_filters_and_no_publications_encrypt_to_nothing() -> None:
    key = Key.generate(SCHEMA)
    assert len(key.encrypt_filters([])) == 0
    assert len(key.encrypt_publications([])) == 0

"""Whole publications under a key."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant import Key, NumericAttribute, Publication, Schema
from lavant.broker.subscriptions.validation import tests_of as checked_tests_of
from lavant.core.errors import InvalidValue, MissingComponent

SCHEMA = Schema.of(NumericAttribute("price", 0, 1000, 0.01))
KEY = Key.generate(SCHEMA)
CIPHER = KEY.cipher()
VALUES = st.one_of(
    st.text(max_size=20), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)
)


@given(st.dictionaries(st.text("abcß", min_size=1), VALUES, max_size=4), st.none() | st.binary(max_size=50))
def test_what_is_sealed_is_opened_as_it_was(attributes: dict[str, str | int | float | bool], payload: bytes) -> None:
    sealed = CIPHER.seal(Publication(attributes=attributes, payload=payload))
    assert CIPHER.open(sealed) == (attributes, payload)


def test_the_same_is_sealed_differently_each_time() -> None:
    publication = Publication(attributes={"price": 5})
    assert len({CIPHER.seal(publication) for _ in range(100)}) == 100


@pytest.mark.parametrize("place", [0, 1, 13, -1])
def test_what_was_changed_on_its_way_is_not_opened(place: int) -> None:
    sealed = bytearray(CIPHER.seal(Publication(attributes={"price": 5})))
    sealed[place] ^= 1
    with pytest.raises(InvalidValue, match="cannot be decrypted"):
        CIPHER.open(bytes(sealed))


@pytest.mark.parametrize("foreign", [b"", b"\x01", b"\x01" + bytes(12), b"plain"])
def test_what_was_never_sealed_is_not_opened(foreign: bytes) -> None:
    with pytest.raises(InvalidValue, match="cannot be decrypted"):
        CIPHER.open(foreign)


def test_another_key_opens_nothing_and_a_saved_one_does(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("keys") / "key.json"
    KEY.save(path)
    sealed = CIPHER.seal(Publication(attributes={"price": 5}))
    assert Key.load(path).cipher().open(sealed) == ({"price": 5}, None)
    with pytest.raises(InvalidValue, match="another key"):
        Key.generate(SCHEMA).cipher().open(sealed)


def test_filters_are_as_the_server_wants_them() -> None:
    filters = checked_tests_of(CIPHER.filter("price > 5"))
    assert filters.tests.shape == (1, 2, 2)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(MissingComponent, match=r"lavant\[encryption\]"):
        KEY.cipher()

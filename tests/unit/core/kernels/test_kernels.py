"""The instructions behind the kernels."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from lavant.core.kernels.kernels import double_bits, kernel, trailing_zeros


@kernel
def zeros_below(word: np.uint64) -> int:
    return int(trailing_zeros(word))


@kernel
def bits_of(value: float) -> np.uint64:
    return np.uint64(double_bits(value))


@pytest.mark.parametrize("bit", [0, 1, 31, 32, 63])
def test_trailing_zeros_finds_the_lowest_bit(bit: int) -> None:
    assert zeros_below(np.uint64(1 << bit)) == bit
    assert zeros_below(np.uint64((2**64 - 1) & ~((1 << bit) - 1))) == bit


def test_a_word_without_bits_has_64_zeros() -> None:
    assert zeros_below(np.uint64(0)) == 64


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -2.5, 5e-324, float("inf")])
def test_the_bits_of_a_double_are_those_in_memory(value: float) -> None:
    assert int(bits_of(value)) == struct.unpack("<Q", struct.pack("<d", value))[0]

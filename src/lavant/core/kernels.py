"""Numba behind one typed door: compiled once, kept on disk, without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numba.core.cgutils
import numba.extending

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a hot loop over arrays. It releases the GIL, so several threads run it at once."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", boundscheck=False)(function))


def fast_kernel(function: F) -> F:
    """A `kernel` whose floating-point sums may be reordered and fused: only where the caller bounds the rounding."""
    flags = {"contract", "reassoc", "nsz", "nnan", "ninf"}
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=flags)(function))


def inline_kernel(function: F) -> F:
    """A small piece of a kernel, inlined where it is called."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")(function))


def _instruction(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """A machine instruction that kernels call like a function of one value."""
    return cast(Callable[[Any], Any], numba.extending.intrinsic(function))


@_instruction
def trailing_zeros(typing_context: Any, value: Any) -> Any:
    """The number of zero bits below the lowest one of an unsigned 64-bit word; 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], numba.core.cgutils.false_bit)

    return numba.uint64(numba.uint64), generate


@_instruction
def double_bits(typing_context: Any, value: Any) -> Any:
    """The 64 bits of a double as an unsigned word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(numba.uint64))

    return numba.uint64(numba.float64), generate

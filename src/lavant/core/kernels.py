"""Numba behind one typed door: compiled once, kept on disk, without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

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

"""Typed decorators for Numba: kernels are compiled once, cached on disk, and release the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numba.core.cgutils
import numba.extending
import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from lavant.core.kernels.cache import KernelCache

F = TypeVar("F", bound=Callable[..., Any])
ScalarT = TypeVar("ScalarT", bound=np.generic)

KERNELS: list[Any] = []
"""All kernels of the loaded modules that are compiled on their own."""


def kernel(function: F) -> F:
    """Compiles a hot loop over arrays. It releases the GIL, so several threads can run it at once."""
    return _kernel(function, boundscheck=False)


def fast_kernel(function: F) -> F:
    """A `kernel` whose floating-point sums may be reordered and fused: only where the caller bounds the rounding."""
    return _kernel(function, fastmath={"contract", "reassoc", "nsz", "nnan", "ninf"})


def inline_kernel(function: F) -> F:
    """A small piece of a kernel, inlined where it is called."""
    return cast(F, numba.njit(nogil=True, error_model="numpy", inline="always")(function))


def borrowing_kernel(function: F) -> F:
    """A `kernel` that counts no references: for many small functions over one tuple of arrays.

    It may not create or keep arrays. Reference counting dominates where functions pass a tuple of thirty arrays to each
    other: without it a simulation runs five times as fast. `_nrt` is Numba's own switch for this.
    """
    return _kernel(function, _nrt=False)


def inlined_kernel(function: F) -> F:
    """A piece of a `borrowing_kernel`, compiled into its caller: a call would copy the tuple of arrays."""
    return _kernel(function, _nrt=False, forceinline=True)


def _kernel(function: F, **options: Any) -> F:
    dispatcher = numba.njit(nogil=True, error_model="numpy", **options)(function)
    dispatcher._cache = KernelCache(function, dispatcher.targetoptions)
    KERNELS.append(dispatcher)
    return cast(F, dispatcher)


def frozen(array: NDArray[ScalarT]) -> NDArray[ScalarT]:
    """Returns a read-only, contiguous view for a kernel that only reads: whether mapped, received or built, it has one
    type, and the kernel is compiled once."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


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
def count_ones(typing_context: Any, value: Any) -> Any:
    """The number of one bits of an unsigned 64-bit word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return numba.uint64(numba.uint64), generate


@_instruction
def double_bits(typing_context: Any, value: Any) -> Any:
    """The 64 bits of a double as an unsigned word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(numba.uint64))

    return numba.uint64(numba.float64), generate


def _and_line(typing_context: Any, target: Any, i: Any, source: Any, j: Any) -> Any:
    """`target[i] &= source[j]` for lines of eight words, in one vector instruction where there is one.

    Both arrays are contiguous and of shape (lines, 8). Numba leaves short loops scalar, which is four times slower.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, lines = ir.IntType(64), []
        vector = ir.VectorType(word, 8)
        for array, number in ((0, 1), (2, 3)):
            data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
            start = builder.gep(data, [builder.mul(arguments[number], ir.Constant(word, 8))])
            lines.append(builder.bitcast(start, vector.as_pointer()))
        both = builder.and_(builder.load(lines[0], align=8), builder.load(lines[1], align=8))
        builder.store(both, lines[0], align=8)
        return context.get_dummy_value()

    return numba.void(target, numba.uint64, source, numba.uint64), generate


and_line = cast(Callable[[Any, Any, Any, Any], None], numba.extending.intrinsic(_and_line))


def _prefetch_line(typing_context: Any, source: Any, j: Any) -> Any:
    """Ask for `source[j]`, a line of eight words, to be brought into the cache; nothing waits for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8), ir.IntType(32)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        start = builder.bitcast(
            builder.gep(data, [builder.mul(arguments[1], ir.Constant(ir.IntType(64), 8))]), byte.as_pointer()
        )
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte.as_pointer()], kind)
        builder.call(prefetch, [start, ir.Constant(number, 0), ir.Constant(number, 3), ir.Constant(number, 1)])
        return context.get_dummy_value()

    return numba.void(source, numba.uint64), generate


prefetch_line = cast(Callable[[Any, Any], None], numba.extending.intrinsic(_prefetch_line))

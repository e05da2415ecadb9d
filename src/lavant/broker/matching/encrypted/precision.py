"""Precision of encrypted comparison: the guard band of single precision and the tolerance of double precision.

A test holds where the scalar product q·p of its vector with the publication's point is not negative. Both are first
scaled to unit length in double precision (which changes no sign), then rounded to single precision.

Single precision, with u = 2⁻²⁴ (half a unit in the last place) and D dimensions:

    rounding q and p moves each product qᵢpᵢ by at most (2u + u²)·|qᵢpᵢ|
    a sum of D products in any order, fused or not, errs by at most γ·Σ|qᵢpᵢ|, γ = Du / (1 - Du)      (Higham, §3.1)
    Σ|qᵢpᵢ| ≤ ‖q‖·‖p‖ = 1                                                                     (Cauchy, Schwarz)

so that together the product errs by at most (D + 2)·u and terms of order (Du)², which for D ≤ 64 are 4·10⁻⁶ of it; the
components too small for a normal single add less than D·2⁻¹⁴⁹, the scaling in double less than D·2⁻⁵². `guard` is 5 %
above that. Beyond the guard band the sign is certain; within it, the test is decided again in double precision.

Double precision: the test holds if q·p ≥ -TOLERANCE·‖q‖·‖p‖. The sum itself errs by less than D·2⁻⁵³ < 10⁻¹⁴, and what
the client's encryption rounds is of order D·κ·2⁻⁵² for a key of condition κ, about 10⁻¹³ at worst; TOLERANCE is above
both, so no match is lost, and a false match needs a publication that lies within 10⁻¹² (relative) of the bound.

Decisions in single precision agree with those in double: a product below -guard in single precision is below
-0.05·(D + 2)·u in truth, ten thousand times the tolerance.
"""

from __future__ import annotations

UNIT_ROUNDOFF_SINGLE = 2.0**-24

TOLERANCE = 1e-12
"""Of a test in double precision, relative to the lengths of its two vectors."""


def guard(dimensions: int) -> float:
    """Above this, a scalar product of unit vectors in single precision is certainly positive; below minus this, not.

    >>> f"{guard(5):.2e}"
    '4.38e-07'
    """
    return 1.05 * (dimensions + 2) * UNIT_ROUNDOFF_SINGLE

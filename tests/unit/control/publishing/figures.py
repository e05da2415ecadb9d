"""Figures for controllers."""

from __future__ import annotations

from lavant.control.publishing import Figures


def figures(
    *,
    now_ms: int = 0,
    load_per_s: float = 0.0,
    capacity_per_s: float | None = None,
    silence_ms: int = 0,
    transfer_size: int = 1,
) -> Figures:
    return Figures(
        now_ms=now_ms,
        load_per_s=load_per_s,
        capacity_per_s=capacity_per_s,
        waiting=7,
        transfers=1,
        silence_ms=silence_ms,
        transfer_size=transfer_size,
    )

"""Allocators by name. The conformance suite runs over all of them."""

from __future__ import annotations

from collections.abc import Callable

from lavant.control.allocation.config import AllocationConfig
from lavant.control.allocation.policies.interface import Allocator
from lavant.control.allocation.policies.min_cost_loop import MinCostAllocator
from lavant.control.allocation.policies.min_time_loop import MinTimeAllocator
from lavant.control.allocation.policies.random import RandomAllocator
from lavant.control.allocation.policies.threshold import ThresholdAllocator
from lavant.control.allocation.system.system import System
from lavant.core.errors import InvalidValue

ALLOCATORS: dict[str, Callable[[System, AllocationConfig], Allocator]] = {
    maker.name: maker for maker in (MinTimeAllocator, MinCostAllocator, ThresholdAllocator, RandomAllocator)
}


def allocator_for(system: System, config: AllocationConfig) -> Allocator:
    """The allocator that the configuration names."""
    maker = ALLOCATORS.get(config.allocator)
    if maker is None:
        raise InvalidValue(f"there is no allocator {config.allocator!r}; there are {', '.join(sorted(ALLOCATORS))}")
    return maker(system, config)

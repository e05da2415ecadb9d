"""Consumers per topic: the least response time for a budget, or the least cost for a response time.

P. Nguyen, K. Nahrstedt, "Resource Management for Elastic Publish Subscribe Systems". `min_time` and `min_cost` plan
once; an `Allocator` plans repeatedly from measurements, with hysteresis.
"""

from lavant.control.allocation.config import AllocationConfig, Caution, Hysteresis, QueueThreshold
from lavant.control.allocation.min_cost import min_cost
from lavant.control.allocation.min_time import min_time
from lavant.control.allocation.plans import AllocationPlan, AllocationStep
from lavant.control.allocation.policies.interface import Allocator, ObservedLoad
from lavant.control.allocation.policies.registry import ALLOCATORS, allocator_for
from lavant.control.allocation.schedule import Schedule, ScheduleConfig
from lavant.control.allocation.system.costs import Cost, Linear, Power, Prices
from lavant.control.allocation.system.system import Budget, Consumers, Goal, Limits, System, Target

__all__ = [
    "ALLOCATORS",
    "AllocationConfig",
    "AllocationPlan",
    "AllocationStep",
    "Allocator",
    "Budget",
    "Caution",
    "Consumers",
    "Cost",
    "Goal",
    "Hysteresis",
    "Limits",
    "Linear",
    "ObservedLoad",
    "Power",
    "Prices",
    "QueueThreshold",
    "Schedule",
    "ScheduleConfig",
    "System",
    "Target",
    "allocator_for",
    "min_cost",
    "min_time",
]

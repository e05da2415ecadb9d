"""Fault options of all scenarios, and how each seed varies them.

By default a seed has only some of the faults, each more or less often than its rate, and a fast or slow disk ("swarm
testing": a run with many of a few kinds reaches more unusual states than one with a few of each; Groce et al., "Swarm
Testing", ISSTA 2012).
"""

from __future__ import annotations

from random import Random

import msgspec

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.disk.disk import DiskConfig
from lavant.simulation.kernel.distributions import Exponential, LogUniform, require_probability
from lavant.simulation.kernel.network import LinkConfig

RATE_PER_MIN_MAX = 60_000
SYNC_US = LogUniform(50, 50_000)
_CHANCE_MAX = 0.5
_THOUSANDTHS = LogUniform(250, 4_000)


class FaultOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How often faults strike, per virtual minute, and how bad links are; a scenario's options begin with these."""

    power_losses_per_min: float = 2.0
    kills_per_min: float = 2.0
    pauses_per_min: float = 1.0
    partitions_per_min: float = 2.0
    storms_per_min: float = 1.0
    slow_disks_per_min: float = 1.0
    full_disks_per_min: float = 1.0
    disk_errors_per_min: float = 0.0
    flipped_bits_per_min: float = 0.0
    clock_jumps_per_min: float = 2.0
    clock_drifts_per_min: float = 1.0
    loss: float = 0.05
    duplication: float = 0.05
    reordering: float = 0.1
    swarm: bool = True
    """Each seed varies these; otherwise all have them unchanged."""

    def __post_init__(self) -> None:
        for name in FaultOptions.__struct_fields__:
            value = getattr(self, name)
            if name.endswith("_per_min") and not 0 <= value <= RATE_PER_MIN_MAX:
                raise InvalidValue(f"{name} must lie in 0 to {RATE_PER_MIN_MAX}, got {value}")
        for name in ("loss", "duplication", "reordering"):
            require_probability(name, getattr(self, name))


def swarmed(value: float, random: Random) -> float:
    """0 for half of all seeds, for the others between a quarter and four times the value."""
    return 0.0 if random.random() < 0.5 else value * _THOUSANDTHS.draw_us(random) / 1000


def swarmed_links(options: FaultOptions, random: Random) -> LinkConfig:
    if not options.swarm:
        return LinkConfig(loss=options.loss, duplication=options.duplication, reordering=options.reordering)
    return LinkConfig(
        loss=min(_CHANCE_MAX, swarmed(options.loss, random)),
        duplication=min(_CHANCE_MAX, swarmed(options.duplication, random)),
        reordering=min(_CHANCE_MAX, swarmed(options.reordering, random)),
        outlives_crash=random.random() < 0.5,
    )


def swarmed_disk(options: FaultOptions, random: Random) -> DiskConfig:
    """Faster than a packet, or much slower, which changes what can happen before a sync is done."""
    if not options.swarm:
        return DiskConfig()
    return DiskConfig(sync_us=Exponential(SYNC_US.draw_us(random), least_us=50))

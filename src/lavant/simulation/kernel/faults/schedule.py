"""The schedule of faults from a seed: which strike when, and when they end.

Each kind has a random stream of its own, so switching one off leaves the others at their times. All end at the calm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.calendar import FIRST
from lavant.simulation.kernel.distributions import MINUTE, Distribution, Exponential, LogUniform
from lavant.simulation.kernel.faults.kinds import KINDS, Strike
from lavant.simulation.kernel.faults.swarm import FaultOptions, swarmed
from lavant.simulation.kernel.host import Host
from lavant.simulation.kernel.world import World

DURATION_US = LogUniform(1_000, 20_000_000)


def schedule_faults(world: World, options: FaultOptions, hosts: Sequence[Host]) -> None:
    """Let faults strike these hosts, their disks and clocks, and the links between all hosts."""
    if not hosts:
        raise InvalidValue("faults need a host to strike, got none")
    for name, strike in KINDS:
        random = world.random(f"faults/{name}")
        rate = getattr(options, f"{name}_per_min")
        if options.swarm:
            rate = swarmed(rate, random)
        if rate > 0:
            _Series(world, name.replace("_", " "), strike, hosts, random, Exponential(int(MINUTE / rate)))


class _Series:
    """Faults of one kind."""

    def __init__(
        self, world: World, name: str, strike: Strike, hosts: Sequence[Host], random: Random, gap_us: Distribution
    ) -> None:
        self._world = world
        self._name = name
        self._strike = strike
        self._hosts = hosts
        self._random = random
        self._gap_us = gap_us
        self._ends: dict[int, Callable[[], object]] = {}
        self._number = 0
        world.at_calm(self._end_all)
        self._next()

    def _next(self) -> None:
        time_us = self._world.now_us + max(1, self._gap_us.draw_us(self._random))
        if time_us < self._world.calm_us:
            self._world.at(time_us, self._begin, priority=FIRST)

    def _begin(self) -> None:
        world = self._world
        struck = self._strike(world, self._hosts, self._random)
        world.count(f"fault {self._name}")
        if struck.end is not None:
            self._number += 1
            self._ends[self._number] = struck.end
            world.after(DURATION_US.draw_us(self._random), self._end, self._number, priority=FIRST)
        world.stage.say(f"fault {self._name}: {struck.what}")
        self._next()

    def _end(self, number: int) -> None:
        end = self._ends.pop(number, None)
        if end is not None:
            self._world.stage.say(f"fault {self._name} ends")
            end()

    def _end_all(self) -> None:
        for number in list(self._ends):
            self._end(number)

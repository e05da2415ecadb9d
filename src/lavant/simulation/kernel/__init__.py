"""The kernel of virtual time: real state machines on simulated hosts, links, disks and clocks, with faults from a
seed.

A run is a function of its seed: the same code with the same seed gives the same trace, byte for byte, in any process.
So a violation found by a search over seeds can be reproduced from its seed.

    Calendar ◄── Stage ──► Randomness, Trace          shared by all parts
       ▲
    World ──► Host (machine, clock, disk) ──► Network (links)
      │          ▲                               ▲
      │          └──────── faults ───────────────┘
      └─► Invariants, Arrivals

How a scenario is written
─────────────────────────

1. A **machine** for each kind of host: `handle(stimulus, now_ms) -> effects` and `wakeup_ms()`, with the stimuli and
   effects of `machine.py`. A machine of the data plane with its own is wrapped: a `match` over `Arrived`, `Written`
   and `TimerDue` that calls it, and its effects turned into `SendPacket` and `Commit`.
2. **boot(host)** makes the machine, from `host.disk` alone: it is called at the start and after each crash.
3. **build(world, options)** makes hosts, work (`world.arrivals`), invariants (`world.invariant`, `world.at_end`) and
   faults (`schedule_faults`). The answers to clients are recorded outside the hosts, since these crash: machines return
   `Note`, and the host's `note` records it.
4. **SCENARIO** in a file of `lavant.simulation.scenarios` makes it available by name.

A complete example: a host that counts requests, and keeps the count in memory only.

>>> class Forgetful:
...     count = 0
...     def handle(self, stimulus, now_ms):
...         self.count += 1
...         return [Note(self.count)]
...     def wakeup_ms(self):
...         return None
>>> class ForgetfulOptions(FaultOptions, frozen=True, kw_only=True):
...     gap_ms: float = 100.0
>>> def build(world, options):
...     noted = [0]
...     host = world.host("one", lambda host: Forgetful(), note=lambda host, count: noted.append(count))
...     gap = Exponential(int(options.gap_ms * MS))
...     world.arrivals("work", gap, lambda random: host.stimulate(WorkRequested("count")))
...     world.invariant("the count rises", lambda: None if max(noted) == noted[-1] else f"it fell to {noted[-1]}")
...     schedule_faults(world, options, [host])
>>> scenario = Scenario(name="forgetful", summary="…", build=build, options=ForgetfulOptions)
>>> print(run(scenario, seed=3).report())
seed 3 violates 'the count rises' at 8.086746 s of virtual time, after 89 events:
  it fell to 1
repeat it with
  lavant sim replay forgetful --seed 3 --minutes 5
"""

from lavant.simulation.kernel.calendar import FIRST, LAST, NORMAL
from lavant.simulation.kernel.disk.disk import Crash, DiskConfig, SimulatedDisk
from lavant.simulation.kernel.distributions import (
    MINUTE,
    MS,
    Constant,
    Distribution,
    Exponential,
    LogUniform,
    Mixture,
    S,
    Uniform,
)
from lavant.simulation.kernel.faults.schedule import schedule_faults
from lavant.simulation.kernel.faults.swarm import FaultOptions, swarmed, swarmed_disk, swarmed_links
from lavant.simulation.kernel.host import Host
from lavant.simulation.kernel.invariants import InvariantViolation
from lavant.simulation.kernel.machine import (
    Arrived,
    Background,
    BackgroundFinished,
    Commit,
    Effect,
    Halt,
    Machine,
    Note,
    SendPacket,
    Stimulus,
    TimerDue,
    WorkRequested,
    WriteFailed,
    Written,
)
from lavant.simulation.kernel.network import LinkConfig
from lavant.simulation.kernel.run import RunOutcome, require_minutes, run
from lavant.simulation.kernel.scenario import Option, Scenario, options_of, parse_options
from lavant.simulation.kernel.trace import Trace
from lavant.simulation.kernel.world import World

__all__ = [
    "FIRST",
    "LAST",
    "MINUTE",
    "MS",
    "NORMAL",
    "Arrived",
    "Background",
    "BackgroundFinished",
    "Commit",
    "Constant",
    "Crash",
    "DiskConfig",
    "Distribution",
    "Effect",
    "Exponential",
    "FaultOptions",
    "Halt",
    "Host",
    "InvariantViolation",
    "LinkConfig",
    "LogUniform",
    "Machine",
    "Mixture",
    "Note",
    "Option",
    "RunOutcome",
    "S",
    "Scenario",
    "SendPacket",
    "SimulatedDisk",
    "Stimulus",
    "TimerDue",
    "Trace",
    "Uniform",
    "WorkRequested",
    "World",
    "WriteFailed",
    "Written",
    "options_of",
    "parse_options",
    "require_minutes",
    "run",
    "schedule_faults",
    "swarmed",
    "swarmed_disk",
    "swarmed_links",
]

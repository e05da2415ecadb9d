"""Values of the placement loop: probes of slices and hosts, placements, moves and plans.

Barazzutti et al., "Elastic Scaling of a High-Throughput Content-Based Publish/Subscribe Engine": Section IV-B has the
probes (CPU, memory, network of each slice), Section V the decisions. A *slice* is a part of an operator (AP, M or EP)
and moves as a whole; a *host* runs slices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from lavant.core.decisions import Decision
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.ids import HostId, SliceId

HOSTS_MAX = 10_000
SLICES_MAX = 100_000
"""Per set of probes: beyond it the sender is broken rather than the cluster large."""


class SliceProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Resources used by one slice: CPU (1.0 is a whole host, unless the configured host capacity has another unit),
    memory, which is also the state that a move copies, and network.
    """

    id: SliceId
    operator: str
    cpu: float
    memory_bytes: int = 0
    network_bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("cpu", "memory_bytes", "network_bytes_per_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidValue(f"{name} of slice {self.id!r} must be a number from 0 on, got {value}")


class HostProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A running host and its slices, if any."""

    id: HostId
    slices: tuple[SliceProbe, ...] = ()


class Probes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One set of probes: every running host, every slice once."""

    hosts: tuple[HostProbe, ...]
    span_ms: int = 0
    """How long before now the measurements began. Of a host that measures whole batches, longer than a gap may be."""

    def __post_init__(self) -> None:
        slices = [probe.id for host in self.hosts for probe in host.slices]
        if len(self.hosts) > HOSTS_MAX or len(slices) > SLICES_MAX:
            raise LimitExceeded(
                f"probes of {len(self.hosts)} hosts and {len(slices)} slices, "
                f"at most {HOSTS_MAX} and {SLICES_MAX} are allowed"
            )
        _refuse_twice("host", (host.id for host in self.hosts))
        _refuse_twice("slice", slices)

    def in_order(self) -> Probes:
        """The same probes sorted by id, so that the order of arrival has no influence."""
        hosts = sorted(self.hosts, key=lambda host: host.id)
        ordered = tuple(HostProbe(id=host.id, slices=_by_id(host.slices)) for host in hosts)
        return Probes(hosts=ordered, span_ms=self.span_ms)


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One slice from the host that runs it to another."""

    slice: SliceId
    source: HostId
    destination: HostId


class PlacementPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Start the added hosts, make the moves in their order, release the hosts that are then empty.

    In this order, no move fills the memory or network of a host beyond its capacity. A plan without changes says why
    nothing can be done about a violated rule.
    """

    decision: Decision
    hosts_added: tuple[HostId, ...] = ()
    hosts_released: tuple[HostId, ...] = ()
    moves: tuple[Move, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.hosts_added or self.hosts_released or self.moves)


class Placement(msgspec.Struct, frozen=True, dict=True):
    """The slices of each host; hosts and slices by id.

    >>> before = Placement.of(["a", "b"], {"M:1": "a", "M:2": "a"})
    >>> move = Move(slice="M:2", source="a", destination="b")
    >>> before.after(PlacementPlan(decision=Decision(loop="placement", action="", reason=""), moves=(move,))).by_host
    (('a', ('M:1',)), ('b', ('M:2',)))
    """

    by_host: tuple[tuple[HostId, tuple[SliceId, ...]], ...]

    @classmethod
    def of(cls, hosts: Iterable[HostId], host_of: Mapping[SliceId, HostId]) -> Placement:
        slices: dict[HostId, list[SliceId]] = {host: [] for host in sorted(hosts)}
        for slice_id, host in sorted(host_of.items()):
            if host not in slices:
                raise InvalidValue(f"slice {slice_id!r} is placed on {host!r}, which is not one of the hosts")
            slices[host].append(slice_id)
        return cls(tuple((host, tuple(ids)) for host, ids in slices.items()))

    @classmethod
    def of_probes(cls, probes: Probes) -> Placement:
        host_of = {probe.id: host.id for host in probes.hosts for probe in host.slices}
        return cls.of([host.id for host in probes.hosts], host_of)

    @cached_property
    def hosts(self) -> tuple[HostId, ...]:
        return tuple(host for host, _ in self.by_host)

    @cached_property
    def host_of(self) -> dict[SliceId, HostId]:
        return {slice_id: host for host, slices in self.by_host for slice_id in slices}

    def after(self, plan: PlacementPlan) -> Placement:
        """The placement after a plan; raises if the plan does not fit this placement."""
        host_of = dict(self.host_of)
        hosts = [*self.hosts, *plan.hosts_added]
        _refuse_twice("host", hosts)
        for move in plan.moves:
            if host_of.get(move.slice) != move.source:
                raise InvalidValue(f"slice {move.slice!r} is not on {move.source!r}; the plan is for another placement")
            host_of[move.slice] = move.destination
        return Placement.of([host for host in hosts if host not in plan.hosts_released], host_of)


def _by_id(slices: Iterable[SliceProbe]) -> tuple[SliceProbe, ...]:
    return tuple(sorted(slices, key=lambda probe: probe.id))


def _refuse_twice(kind: str, ids: Iterable[str]) -> None:
    for name, count in Counter(ids).items():
        if count > 1:
            raise InvalidValue(f"{kind} {name!r} occurs {count} times; each {kind} is in one place")

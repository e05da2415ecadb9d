"""The manager of e-StreamHub (Section IV-B) in virtual time: carries out plans and knows where everything is.

A plan goes through three stages: added hosts start, all at once; slices move one after the other; emptied hosts go.
"""

from __future__ import annotations

import msgspec

from lavant.control.placement.values import Move, Placement, Plan
from lavant.core.ids import HostId
from lavant.simulation.placement.cluster import Slices


class Manager:
    """The placement, and the plan that is being carried out."""

    def __init__(self, placement: Placement, slices: Slices, *, host_start_ms: int) -> None:
        self.placement = placement
        self.moves = 0
        self.state_bytes = 0
        self._slices = slices
        self._host_start_ms = host_start_ms
        self._plan: Plan | None = None
        self._starting: tuple[HostId, ...] = ()
        self._moving: list[Move] = []
        self._busy_until_ms = 0

    @property
    def hosts_paid(self) -> int:
        return len(self.placement.hosts) + len(self._starting)

    def start(self, plan: Plan, now_ms: int) -> None:
        assert self._plan is None, "one plan at a time"
        self._plan = plan
        self._starting = plan.hosts_added
        self._moving = list(plan.moves)
        self._busy_until_ms = now_ms + (self._host_start_ms if plan.hosts_added else self._next_move_ms())

    def advance(self, now_ms: int) -> None:
        """Do what is due."""
        while self._plan is not None and self._busy_until_ms <= now_ms:
            if self._starting:
                self._apply(self._part(hosts_added=self._starting))
                self._starting = ()
            elif self._moving:
                move = self._moving.pop(0)
                self._apply(self._part(moves=(move,)))
                self.moves += 1
                self.state_bytes += self._slices.state_bytes[self._slices.ids.index(move.slice)]
            if not self._moving:
                self._apply(self._part(hosts_released=self._plan.hosts_released))
                self._plan = None
            self._busy_until_ms += self._next_move_ms()

    def _next_move_ms(self) -> int:
        return self._slices.move_ms(self._moving[0].slice) if self._moving else 0

    def _part(self, **changes: object) -> Plan:
        assert self._plan is not None
        nothing: dict[str, object] = {"hosts_added": (), "hosts_released": (), "moves": ()}
        return msgspec.structs.replace(self._plan, **{**nothing, **changes})

    def _apply(self, part: Plan) -> None:
        self.placement = self.placement.after(part)

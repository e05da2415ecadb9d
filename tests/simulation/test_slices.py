"""Slices that move between hosts that crash: it holds, mistakes that are put into it are found, and runs repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.simulation.repetition import check_repetition

from lavant.broker.slices import ExitSlice, SliceDelivery, exit, links, wire
from lavant.broker.slices.layout import SliceLayout
from lavant.broker.slices.links import Inbox, Item, Outlet
from lavant.broker.slices.machine import SliceMachine
from lavant.broker.slices.migration.host import HostEffect, SliceHost
from lavant.broker.slices.migration.hosted_slice import Hosted, MovedSlice, Role, SavedSlice
from lavant.broker.slices.migration.messages import Ack, Data, Settle, Transmit
from lavant.broker.slices.migration.migration import Migration, MigrationEffect, MigrationStep
from lavant.broker.slices.values import BatchId
from lavant.core.ids import HostId, SliceId
from lavant.simulation.kernel import Effect, RunOutcome, Trace, run
from lavant.simulation.scenarios import slices
from lavant.simulation.scenarios.slices import SliceOptions
from lavant.simulation.slices.machines import Durable

SEARCHED = range(1, 60)
MINUTES = 0.15
STEPS = ("creating", "duplicating", "stopping", "copying", "switching", "abandoning")
BUSY = SliceOptions(moves_per_min=120, strikes=0.3, gap_ms=200)
"""Much of a short time is spent moving."""
LOSSY = SliceOptions(swarm=False, moves_per_min=300, strikes=0.5, gap_ms=400, loss=0.4)
CROWDED = SliceOptions(swarm=False, gap_ms=20, moves_per_min=60, storms_per_min=20)
FEW = SliceOptions(
    swarm=False, moves_per_min=1200, gap_ms=300, loss=0.2, duplication=0.4, reordering=0.4, access=1, match=1, exit=1
)

Break = Callable[[pytest.MonkeyPatch], None]
"""Puts a mistake into the machines."""


def test_slices_without_mistakes_hold_whatever_happens() -> None:
    figures: Counter[str] = Counter()
    for options, seeds in ((BUSY, 6), (LOSSY, 24), (FEW, 6)):
        for seed in range(1, seeds + 1):
            outcome = run(slices.SCENARIO, seed, minutes=MINUTES, options=options)
            assert outcome.violation is None, outcome.report()
            figures.update(outcome.figures)
    # And much did happen: both ends of a migration, and crashes of everybody at each of its steps.
    wanted = ["power losses", "kills", "packets dropped", "packets held back", "slices moved", "migrations abandoned"]
    struck = [f"struck {role} while {step}" for role in ("source", "destination", "manager") for step in STEPS]
    assert [name for name in [*wanted, *struck] if not figures[name]] == []


def narrow_links(patch: pytest.MonkeyPatch) -> None:
    """Links that hold three items, so that slices often have to wait for room."""
    for module in (links, exit):
        patch.setattr(module, "WINDOW", 3)


def test_slices_that_often_wait_for_room_hold_too(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow_links(monkeypatch)
    for options, seeds in ((BUSY, 4), (CROWDED, 3)):
        for seed in range(1, seeds + 1):
            outcome = run(slices.SCENARIO, seed, minutes=MINUTES / 2, options=options)
            assert outcome.violation is None, outcome.report()


# ── mistakes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def vector_that_stays_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inbox, "advance", lambda self, vector: None)


def numbers_that_begin_anew(patch: pytest.MonkeyPatch) -> None:
    restore = SliceMachine.restore

    def restore_and_forget(self: SliceMachine, snapshot: bytes) -> None:
        restore(self, snapshot)
        self._sent = {}

    patch.setattr(SliceMachine, "restore", restore_and_forget)


def slice_that_goes_on_after_its_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Hosted,
        "is_running",
        property(lambda self: self.role in (Role.ACTIVE, Role.STOPPING, Role.STOPPED)),
    )


def outputs_that_stay_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hosted, "moved", lambda self: MovedSlice(self.machine.snapshot(), []))


def effects_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    hold = Durable.hold

    def let_go(self: Durable[Any], effects: list[Effect]) -> list[Effect]:
        return [*effects, *hold(self, [])]

    patch.setattr(Durable, "hold", let_go)


def newcomer_that_acknowledges(patch: pytest.MonkeyPatch) -> None:
    take_data = SliceHost._data

    def acknowledge_all(self: SliceHost, source: HostId, data: Data, now_ms: int) -> list[HostEffect]:
        waiting = data.to in self.slices and self.slices[data.to].role is Role.WAITING
        effects = take_data(self, source, data, now_ms)
        return [*effects, Transmit(source, Ack(data.upstream, data.to, data.sequence))] if waiting else effects

    patch.setattr(SliceHost, "_data", acknowledge_all)


def deadline_after_the_decision(patch: pytest.MonkeyPatch) -> None:
    due = Migration._due

    def change_mind(self: Migration, now_ms: int) -> list[MigrationEffect]:
        if self.step is MigrationStep.SWITCHING:
            self.step, self._unsettled = MigrationStep.ABANDONING, {self.order.source, self.order.destination}
            return self._say(now_ms)
        return due(self, now_ms)

    patch.setattr(Migration, "_due", change_mind)


def migrations_that_are_never_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SliceHost, "_is_over", lambda self, slice, number: False)


def snapshot_without_what_waits(patch: pytest.MonkeyPatch) -> None:
    save = Hosted.save

    def save_less(self: Hosted) -> SavedSlice:
        return msgspec.structs.replace(save(self), waiting=[])

    patch.setattr(Hosted, "save", save_less)


def start_that_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    record = Durable.record

    def record_stimuli(self: Durable[Any], stimulus: Any, now_ms: int) -> None:
        if stimulus is not None:
            record(self, stimulus, now_ms)

    patch.setattr(Durable, "record", record_stimuli)


def lists_that_are_lost_in_a_move(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExitSlice, "_save", lambda self: msgspec.msgpack.encode([]))


def gap_that_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    def take_first(self: Inbox[Any], upstream: SliceId) -> tuple[int, Any] | None:
        waiting = self._waiting.get(upstream)
        if not waiting:
            return None
        sequence = min(waiting)
        self.vector[upstream] = sequence
        return sequence, waiting.pop(sequence)

    patch.setattr(Inbox, "take", take_first)


def duplicate_that_is_processed(patch: pytest.MonkeyPatch) -> None:
    def put_any(self: Inbox[Any], upstream: SliceId, sequence: int, item: Any) -> bool:
        self.vector[upstream] = min(self.vector.get(upstream, 0), sequence - 1)
        self._waiting.setdefault(upstream, {})[sequence] = item
        return True

    def never_known(self: Hosted, upstream: SliceId, sequence: int, content: bytes, now_ms: int) -> Any:
        return self._proceed(SliceDelivery(upstream, sequence, wire.decode(content)), now_ms)

    patch.setattr(Inbox, "put", put_any)
    patch.setattr(Hosted, "deliver", never_known)


def room_that_is_not_given_back(patch: pytest.MonkeyPatch) -> None:
    """An input without an output uses up room for good."""

    def handle_once(self: Hosted, stimulus: Any, now_ms: int) -> list[Any]:
        return list(self._kept(self.machine.handle(stimulus, now_ms), now_ms))

    narrow_links(patch)
    patch.setattr(Hosted, "_proceed", handle_once)


def loss_that_is_not_mended(patch: pytest.MonkeyPatch) -> None:
    resend = Outlet.resend

    def resend_nothing(self: Outlet, now_ms: int) -> Iterator[Item]:
        return iter(list(resend(self, now_ms))[:0])

    patch.setattr(Outlet, "resend", resend_nothing)


def removal_of_the_wrong_instance(patch: pytest.MonkeyPatch) -> None:
    settle = SliceHost._settle

    def settle_the_other_way(self: SliceHost, message: Settle, now_ms: int) -> list[HostEffect]:
        here = self.slices.get(message.slice)
        if here is not None and here.role is Role.STOPPED:
            here.role = Role.COPIED
        return settle(self, message, now_ms)

    patch.setattr(SliceHost, "_settle", settle_the_other_way)


def second_state_over_the_first(patch: pytest.MonkeyPatch) -> None:
    """A state that comes late is taken, though the slice has gone on since."""
    take_state = SliceHost._state

    def take_again(self: SliceHost, state: Any) -> list[HostEffect]:
        here = self.slices.get(state.slice)
        if here is not None and here.role is Role.ACTIVE and here.migration == state.migration:
            here.take(msgspec.msgpack.decode(state.state, type=MovedSlice))
        return take_state(self, state)

    patch.setattr(SliceHost, "_state", take_again)


def exit_that_differs_between_match_slices(patch: pytest.MonkeyPatch) -> None:
    def exit_of(self: SliceLayout, batch: BatchId) -> SliceId:
        exit_of.calls += 1  # type: ignore[attr-defined]
        return self.exit_slices[(batch.number + exit_of.calls // 97) % self.exit]  # type: ignore[attr-defined]

    exit_of.calls = 0  # type: ignore[attr-defined]
    patch.setattr(SliceLayout, "exit_of", exit_of)


MISTAKES: Mapping[str, Break] = {
    "the timestamp vector is not moved": vector_that_stays_behind,
    "outputs are numbered anew after a move": numbers_that_begin_anew,
    "the old slice goes on after its state was copied": slice_that_goes_on_after_its_copy,
    "what nobody acknowledged is not moved": outputs_that_stay_behind,
    "effects go out before they are durable": effects_before_they_are_durable,
    "a slice acknowledges before it has the state": newcomer_that_acknowledges,
    "a migration is abandoned after it was decided": deadline_after_the_decision,
    "late commands of migrations that are over are obeyed": migrations_that_are_never_over,
    "the snapshot of a host has nothing of what waits": snapshot_without_what_waits,
    "a start is not recorded": start_that_is_not_recorded,
    "an exit slice loses its lists in a move": lists_that_are_lost_in_a_move,
    "a gap is not noticed": gap_that_is_not_noticed,
    "a duplicate is processed": duplicate_that_is_processed,
    "what was lost is not sent again": loss_that_is_not_mended,
    "inputs without outputs use up room": room_that_is_not_given_back,
    "the wrong instance is removed": removal_of_the_wrong_instance,
    "a late state is taken": second_state_over_the_first,
    "match slices disagree about the exit": exit_that_differs_between_match_slices,
}


OPTIONS = {
    "a late state is taken": FEW,
    "a migration is abandoned after it was decided": LOSSY,
    "a start is not recorded": LOSSY,
}
"""For mistakes that need more of something to show."""


def first_violation(mistake: str) -> RunOutcome:
    """The first seed that fails; a failure of this test means that the search finds nothing."""
    options = OPTIONS.get(mistake, BUSY)
    outcomes = (run(slices.SCENARIO, seed, minutes=MINUTES, options=options) for seed in SEARCHED)
    return next(outcome for outcome in outcomes if outcome.violation is not None)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_search_finds_a_mistake(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[mistake](monkeypatch)
    found = first_violation(mistake)
    assert found.violation is not None
    assert f"lavant sim replay slices --seed {found.seed} --minutes {MINUTES}" in found.report()


# ── repetition ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_traces_are_byte_identical_in_processes_that_hash_differently(tmp_path: Path) -> None:
    check_repetition("slices", tmp_path, seed=3, minutes=0.04)


def test_another_seed_is_another_run() -> None:
    digests = {run(slices.SCENARIO, seed, minutes=0.02, trace=Trace()).digest for seed in range(4)}
    assert len(digests) == 4

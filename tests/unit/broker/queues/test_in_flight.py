"""Hidden messages come out by time and number, whatever was forgotten, changed or thrown out meanwhile."""

from __future__ import annotations

import random

import pytest

from lavant.broker.queues.in_flight import BUCKET_BITS, STALE_MIN, InFlight
from lavant.broker.queues.message import Message

BUCKET_MS = 1 << BUCKET_BITS


def message(number: int, visible_ms: int) -> Message:
    return Message(number, b"", b"", 0, 0, visible_ms, 0, 0, 0, "", "", None)


def take(hidden: InFlight, now_ms: int) -> list[tuple[int, int]]:
    taken = []
    for each in hidden.due(now_ms):
        taken.append((each.visible_ms, each.number))
        each.visible_ms = 0
    return taken


@pytest.mark.parametrize("span_ms", [3, BUCKET_MS, 50 * BUCKET_MS])
@pytest.mark.parametrize("seed", range(8))
def test_it_is_a_sorted_list_that_forgets(seed: int, span_ms: int) -> None:
    rng = random.Random(seed)
    messages: dict[int, Message] = {}
    hidden = InFlight(messages)
    now_ms = number = 0
    for _ in range(1500):
        choice = rng.random()
        waiting = [each for each in messages.values() if each.visible_ms]
        if choice < 0.5:
            number += 1
            messages[number] = message(number, now_ms + rng.randint(1, span_ms))
            hidden.add([messages[number]], messages[number].visible_ms)
        elif choice < 0.7 and waiting:
            del messages[rng.choice(waiting).number]
        elif choice < 0.85 and waiting:
            changed = rng.choice(waiting)
            changed.visible_ms = now_ms + rng.randint(1, span_ms)
            hidden.add([changed], changed.visible_ms)
        else:
            now_ms += rng.randint(0, span_ms // 8)
            expected = sorted((each.visible_ms, each.number) for each in waiting if each.visible_ms <= now_ms)
            assert take(hidden, now_ms) == expected
        left = [each.visible_ms for each in messages.values() if each.visible_ms]
        if rng.random() < 0.3:
            assert hidden.next_ms() == min(left, default=None)
        hidden.tidy(len(left))
        assert len(left) <= len(hidden) <= 2 * len(left) + STALE_MIN


def test_a_time_that_changes_to_and_fro_counts_once() -> None:
    messages = {1: message(1, 5 * BUCKET_MS)}
    hidden = InFlight(messages)
    for visible_ms in (5 * BUCKET_MS, 9 * BUCKET_MS, 5 * BUCKET_MS):
        messages[1].visible_ms = visible_ms
        hidden.add([messages[1]], messages[1].visible_ms)
    assert take(hidden, 20 * BUCKET_MS) == [(5 * BUCKET_MS, 1)]


def test_what_comes_before_the_first_is_first() -> None:
    messages = {number: message(number, visible_ms) for number, visible_ms in enumerate([900_000, 30_000, 30_001], 1)}
    hidden = InFlight(messages)
    found = []
    for each in messages.values():
        hidden.add([each], each.visible_ms)
        found.append(hidden.next_ms())
    assert found == [900_000, 30_000, 30_000]
    assert [number for _, number in take(hidden, 900_000)] == [2, 3, 1]


def test_a_time_that_is_set_again_and_again_does_not_pile_up() -> None:
    messages = {1: message(1, 5 * BUCKET_MS)}
    hidden = InFlight(messages)
    for _ in range(1000):
        hidden.add([messages[1]], messages[1].visible_ms)
        hidden.tidy(1)
        assert len(hidden) <= 2 + STALE_MIN


def test_entries_of_messages_that_are_gone_do_not_count_any_more_when_their_bucket_is_near() -> None:
    messages = {number: message(number, 5 * BUCKET_MS) for number in range(1, 101)}
    hidden = InFlight(messages)
    for each in messages.values():
        hidden.add([each], each.visible_ms)
    for number in range(1, 91):
        del messages[number]
    assert (hidden.next_ms(), len(hidden)) == (5 * BUCKET_MS, 10)


def test_a_bucket_of_which_nothing_is_left_is_passed_over() -> None:
    messages = {number: message(number, (1 + number % 2) * 5 * BUCKET_MS) for number in range(1, 201)}
    hidden = InFlight(messages)
    for each in messages.values():
        hidden.add([each], each.visible_ms)
    for number in range(2, 201, 2):
        del messages[number]
    for number in range(3, 201, 2):
        del messages[number]
    hidden.tidy(1)
    assert take(hidden, 20 * BUCKET_MS) == [(10 * BUCKET_MS, 1)]

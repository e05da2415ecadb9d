"""Evacuation: every subscription that can move is asked for once, and each outcome is counted."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from lavant.cli.reports.evacuation import AT_ONCE, Evacuation
from lavant.core.errors import SubscriptionMoving

SUBSCRIPTIONS = 3 * AT_ONCE + 1


class FakeBroker:
    """Answers moves when as many as possible are under way, or after a moment."""

    def __init__(self) -> None:
        self.names = [f"s{number}" for number in range(SUBSCRIPTIONS)]
        self.asked: Counter[str] = Counter()
        self.at_once = 0
        self._under_way = 0
        self._changed = threading.Condition()

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        if body is None:
            listed = [{"namespace": "", "name": name, "is_movable": name != "s0"} for name in self.names]
            return {"subscriptions": listed}
        name = body["subscription"]
        with self._changed:
            self.asked[name] += 1
            self._under_way += 1
            self.at_once = max(self.at_once, self._under_way)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._under_way >= AT_ONCE, timeout=0.02)
            self._under_way -= 1
            if name == "s7":
                raise SubscriptionMoving("no room")
            self.names.remove(name)
        return {}


def test_all_that_can_move_are_moved_and_the_others_are_told() -> None:
    broker = FakeBroker()
    result = Evacuation(broker.ask, ["B2", "B3"], rate_per_s=1e9).run()
    assert broker.asked == Counter(f"s{number}" for number in range(1, SUBSCRIPTIONS))
    assert broker.at_once <= AT_ONCE
    assert (result["moved"], result["left"], result["is_stopped"]) == (SUBSCRIPTIONS - 2, 2, False)
    assert set(result["failed"]) == {"s0", "s7"}
    assert result["failed"]["s7"] == "no room"


def test_subscriptions_of_one_name_in_two_namespaces_are_told_apart() -> None:
    listed = [{"namespace": namespace, "name": "s", "is_movable": False} for namespace in ("", "acme", "umbrella")]
    result = Evacuation(lambda path: {"subscriptions": listed}, ["B2"], rate_per_s=1.0).run()
    assert set(result["failed"]) == {"s", "acme/s", "umbrella/s"}

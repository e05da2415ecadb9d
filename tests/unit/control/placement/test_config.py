"""The configuration refuses what cannot work, and says why."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from lavant.control.placement.config import Band, ForecastConfig, HostCapacity, PlacementConfig, Rules
from lavant.core.errors import InvalidValue


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Band(0.7, 0.3), "0 ≤ low < high ≤ 1"),
        (lambda: Rules(target=0.75), "the target must lie within the bands"),
        (lambda: Rules(window_ms=0), "window_ms must be positive, got 0"),
        (lambda: Rules(grace_ms=-1), "grace_ms must be 0 or more, got -1"),
        (lambda: HostCapacity(memory_bytes=0), "memory_bytes must be positive"),
        (lambda: PlacementConfig(hosts_min=0), "1 ≤ hosts_min ≤ hosts_max"),
        (lambda: PlacementConfig(hosts_min=3, hosts_max=2), "got 3 and 2"),
        (lambda: ForecastConfig(lead_ms=0), "lead_ms must be positive, got 0"),
        (lambda: ForecastConfig(fill_low=0.7), "got 0.7 and 0.62"),
        (lambda: ForecastConfig(saturated_factor=0.5), "saturated_factor must be 1 or more"),
    ],
)
def test_what_cannot_work_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        make()


def test_defaults_are_those_of_the_paper() -> None:
    rules = PlacementConfig().rules
    assert (rules.average, rules.host, rules.target) == (Band(0.30, 0.70), Band(0.20, 0.80), 0.50)
    assert (rules.window_ms, rules.grace_ms) == (30_000, 30_000)


def test_a_configuration_survives_a_round_trip_through_json() -> None:
    config = PlacementConfig(policy="threshold", hosts_max=7)
    assert msgspec.json.decode(msgspec.json.encode(config), type=PlacementConfig) == config

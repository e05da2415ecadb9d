"""A configuration that cannot work is refused, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from lavant.control.publishing import PublisherConfig, PublisherMachine, TuningConfig
from lavant.core.errors import InvalidValue


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"batch_size": 0}, "got 1, 0 and 1000"),
        ({"batch_size": 2000}, "got 1, 2000 and 1000"),
        ({"poll_ms_min": 300}, "got 300 and 200"),
        ({"poll_ms": 0}, "poll_ms must be 1 or more, got 0"),
        ({"poll_margin": 1.0}, "poll_margin must be above 1, got 1.0"),
        ({"load_gain": 1.0}, "load_gain must be 0 or more and below 1, got 1.0"),
        ({"capacity_gain": -0.1}, "capacity_gain must be 0 or more and below 1, got -0.1"),
    ],
)
def test_tuning_that_cannot_work_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        TuningConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"workers": 3, "workers_reserved": 3}, "got 3 and 3"),
        ({"workers_reserved": -1}, "got -1 and 20"),
        ({"buffer_max": 0}, "buffer_max must be 1 or more, got 0"),
        ({"held_bytes_max": 0}, "held_bytes_max must be 1 or more, got 0"),
        ({"transfer_size_max": 0}, "transfer_size_max must be 1 or more, got 0"),
        ({"backoff_ms_min": 500, "backoff_ms_max": 100}, "got 500 and 100"),
    ],
)
def test_a_publisher_that_cannot_work_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        PublisherConfig(**settings)


def test_a_controller_that_is_not_there_is_named_with_those_that_are() -> None:
    config = PublisherConfig(tuning=TuningConfig(controller="eeger"))
    with pytest.raises(InvalidValue, match="no controller 'eeger'; choose one of aimd, eager, fixed"):
        PublisherMachine(config, now_ms=0)

"""What one seed makes of the options that all scenarios have."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.disk.disk import DiskConfig
from lavant.simulation.kernel.distributions import Exponential
from lavant.simulation.kernel.faults.swarm import FaultOptions, swarmed, swarmed_disk, swarmed_links
from lavant.simulation.kernel.network import LinkConfig

SEEDS = range(400)


def test_a_swarmed_value_is_nothing_or_about_the_value() -> None:
    values = [swarmed(8.0, Random(seed)) for seed in SEEDS]
    others = [value for value in values if value]
    assert 150 < len(others) < 250
    assert 2.0 <= min(others) < 3.0
    assert 24.0 < max(others) <= 32.0


def test_links_differ_from_seed_to_seed_and_always_let_something_through() -> None:
    links = [swarmed_links(FaultOptions(loss=0.3), Random(seed)) for seed in SEEDS]
    assert {link.loss > 0 for link in links} == {True, False}
    assert max(link.loss for link in links) == 0.5
    assert {link.outlives_crash for link in links} == {True, False}


def test_disks_are_quicker_or_slower_than_packets() -> None:
    disks = [swarmed_disk(FaultOptions(), Random(seed)) for seed in SEEDS]
    means_us = [disk.sync_us.mean_us for disk in disks if isinstance(disk.sync_us, Exponential)]
    assert min(means_us) < 100
    assert max(means_us) > 20_000


def test_without_a_swarm_all_is_as_the_options_say() -> None:
    options = FaultOptions(loss=0.2, duplication=0.3, reordering=0.4, swarm=False)
    assert swarmed_links(options, Random(1)) == LinkConfig(loss=0.2, duplication=0.3, reordering=0.4)
    assert swarmed_disk(options, Random(1)) == DiskConfig()


@pytest.mark.parametrize("rate", [-1.0, 1e6, float("nan")])
def test_a_rate_that_makes_no_sense_is_refused(rate: float) -> None:
    with pytest.raises(InvalidValue, match="kills_per_min must lie in 0 to 60000, got"):
        FaultOptions(kills_per_min=rate)


@pytest.mark.parametrize("name", ["loss", "duplication", "reordering"])
def test_a_chance_that_makes_no_sense_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"{name} is a probability and must lie in 0 to 1, got 2"):
        msgspec.structs.replace(FaultOptions(), **{name: 2.0})

"""The arithmetic of sizing: what goes in comes out, more load never takes less, and bounds are where they must be."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.core.errors import InvalidValue
from lavant.pipeline.sizing.constants import MATCHERS, Measured, PipelineConstants
from lavant.pipeline.sizing.estimate import (
    SLICES_OF_HOST,
    UTILIZATION_MAX,
    ClusterShape,
    PipelineLoad,
    SizingEstimate,
    estimate,
)

CLUSTER = ClusterShape(executors=100)
loads = st.builds(
    PipelineLoad,
    subscriptions=st.integers(10_000, 100_000_000),
    publications_per_s=st.floats(1, 1e6),
    matches=st.floats(0, 1000),
    kind=st.sampled_from(list(MATCHERS)),
    publication_bytes=st.one_of(st.none(), st.floats(10, 1e4)),
)
hosts_of_cluster = st.integers(1, 1000)


def busy(found: SizingEstimate) -> float:
    return next(each.share for each in found.resources if each.name == "the busiest host's core")


@given(loads, hosts_of_cluster)
def test_the_work_of_the_stages_is_the_work_of_the_hosts(load: PipelineLoad, hosts: int) -> None:
    found = estimate(load, CLUSTER, hosts=hosts)
    total = found.access_cores + found.match_cores + found.exit_cores
    others = found.access_cores / found.access_tasks  # which only some hosts have to do
    assert busy(found) * hosts == pytest.approx(total + others * (hosts - found.access_tasks))


@given(loads, hosts_of_cluster)
def test_a_batch_takes_what_arrives_while_it_runs(load: PipelineLoad, hosts: int) -> None:
    found = estimate(load, CLUSTER, hosts=hosts)
    if busy(found) >= 1:
        assert found.batch_s == math.inf
        return
    constants = PipelineConstants()
    scheduling = (found.access_tasks + hosts + found.exit_tasks) * constants.task.value
    matching = 2 * (hosts * constants.task.value + constants.start.value) + busy(found) * found.batch_s
    access = constants.batch.value + found.access_tasks * constants.task.value + constants.start.value
    access += found.access_cores / found.access_tasks * found.batch_s
    assert found.batch_s == pytest.approx(max(access, matching, scheduling))
    assert found.batch_publications == pytest.approx(load.publications_per_s * found.batch_s)
    assert found.delay_s == pytest.approx(found.batch_s / 2 + access + matching)


@given(loads, hosts_of_cluster)
def test_no_byte_of_the_results_is_lost_on_the_way(load: PipelineLoad, hosts: int) -> None:
    found = estimate(load, CLUSTER, hosts=hosts)
    ids = load.matches * load.publications_per_s
    assert found.result_bytes_per_s >= 4 * ids
    assert found.broadcast_bytes_per_s == pytest.approx(found.log_bytes_per_s * hosts)
    if not MATCHERS[load.kind].runs.value:
        assert found.shuffle_bytes_per_s >= 2 * ids


@given(loads, hosts_of_cluster, st.sampled_from(["subscriptions", "publications_per_s", "matches"]), st.integers(2, 9))
def test_more_load_never_takes_less(load: PipelineLoad, hosts: int, what: str, factor: int) -> None:
    more = msgspec.structs.replace(load, **{what: getattr(load, what) * factor})
    # Longer batches are fewer, so there are fewer headers.
    headless = msgspec.structs.replace(PipelineConstants(), block_bytes=Measured(0, "bytes", "none"))
    before, after = (estimate(each, CLUSTER, headless, hosts=hosts) for each in (load, more))
    for name in ("match_cores", "exit_cores", "batch_s", "delay_s", "result_bytes_per_s", "shuffle_bytes_per_s"):
        assert getattr(after, name) >= getattr(before, name) * (1 - 1e-9)
    shares = {use.name: use.share for use in after.resources}
    assert [use for use in before.resources if shares[use.name] < use.share * (1 - 1e-9)] == []


@given(loads)
def test_the_hosts_needed_are_the_fewest_that_suffice(load: PipelineLoad) -> None:
    needed = estimate(load, CLUSTER).hosts_needed
    if needed is None:
        assert busy(estimate(load, CLUSTER, hosts=100_000)) > UTILIZATION_MAX
        return
    assert busy(estimate(load, CLUSTER, hosts=needed)) <= UTILIZATION_MAX * (1 + 1e-6)
    if needed > 1:
        assert busy(estimate(load, CLUSTER, hosts=needed - 1)) > UTILIZATION_MAX * (1 - 1e-6)


@given(loads)
def test_the_executors_are_a_bound_and_the_scarcest_comes_first(load: PipelineLoad) -> None:
    found = estimate(load, CLUSTER)
    assert found.hosts <= CLUSTER.executors
    assert found.match_slices == found.hosts * SLICES_OF_HOST
    assert [use.share for use in found.resources] == sorted((use.share for use in found.resources), reverse=True)
    assert found.is_feasible == (found.headroom > 1)


def test_what_saturates_follows_the_limits() -> None:
    load = PipelineLoad(subscriptions=1_000_000, publications_per_s=50_000, matches=2000, kind="equality")
    slow = msgspec.structs.replace(CLUSTER, storage_bytes_per_s=1e6)
    assert estimate(load, slow).resources[0].name == "the storage"
    assert not estimate(load, slow).is_feasible
    unshared = msgspec.structs.replace(CLUSTER, is_storage_shared=False, network_bytes_per_s=1e8)
    assert estimate(load, unshared).resources[0].name == "the driver's network"
    narrow = msgspec.structs.replace(CLUSTER, network_bytes_per_s=1e6)
    assert estimate(load, narrow).resources[0].name == "a host's network"


def test_a_slower_constant_takes_more_hosts() -> None:
    load = PipelineLoad(subscriptions=1_000_000, publications_per_s=50_000, matches=2000)
    slower = msgspec.structs.replace(PipelineConstants(), exit_id=Measured(1e-6, "s/match", "slow"))
    assert estimate(load, CLUSTER, slower).hosts > estimate(load, CLUSTER).hosts
    assert estimate(load, CLUSTER, slower).exit_cores > estimate(load, CLUSTER).exit_cores


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subscriptions": 0}, "subscriptions must be positive, got 0"),
        ({"publications_per_s": -1.0}, "publications_per_s must be positive, got -1.0"),
        ({"publications_per_s": math.nan}, "publications_per_s must be positive and finite, got nan"),
        ({"publications_per_s": math.inf}, "publications_per_s must be positive and finite, got inf"),
        ({"publication_bytes": 0.0}, "publication_bytes must be positive, got 0.0"),
        ({"matches": math.nan}, "matches must be between 0 and 1000 subscriptions, got nan"),
        ({"matches": 1001.0}, "matches must be between 0 and 1000 subscriptions, got 1001.0"),
        ({"kind": "odd"}, "kind 'odd' is none of equality, ranges, encrypted"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        PipelineLoad(**({"subscriptions": 1000, "publications_per_s": 1.0, "matches": 1.0} | changes))  # type: ignore[arg-type]

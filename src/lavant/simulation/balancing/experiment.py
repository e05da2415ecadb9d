"""Experiments of Chapter 5: what runs, and the trace that a run leaves."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from lavant.control.balancing.cluster import ClusterBalancer
from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.edge import EdgeBalancer
from lavant.control.balancing.policies.registry import balancing_policy
from lavant.control.balancing.values import BalancingDecision
from lavant.simulation.balancing.brokers import BrokerSpec
from lavant.simulation.balancing.workload import QuoteWorkload
from lavant.simulation.balancing.world import BalancingWorld, ControlFaults

EVERY_S = 10
"""Between two rows of a trace."""

SERIES = (
    *("input", "output", "delay_s", "subscribers", "input_queuing_s", "output_queuing_s", "delivery_s"),
    *("control_messages", "messages", "deliveries", "moves"),
)
"""The columns of a row, in this order."""

Floats = npt.NDArray[np.float64]


class BalancingExperiment(msgspec.Struct, frozen=True, kw_only=True):
    """Brokers, clients and times of an experiment. All subscribers join one broker."""

    name: str
    brokers: tuple[BrokerSpec, ...]
    joins_at: str
    neighbours: dict[str, tuple[str, ...]] = {}
    """By head, the heads next to it; without clusters there is no head."""
    publishers: int = 40
    subscribers: int = 2000
    zero_traffic: float = 0.25
    joins_s: tuple[float, float] = (10, 1010)
    change_s: int | None = 3000
    """When half of the publishers double their rates."""
    duration_s: int = 6000


class BalancingTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A run as columns: one row every `EVERY_S` seconds, one column a broker."""

    experiment: BalancingExperiment
    policy: str
    seed: int
    time_s: Floats
    input: Floats
    output: Floats
    delay_s: Floats
    subscribers: npt.NDArray[np.int64]
    input_queuing_s: Floats
    output_queuing_s: Floats
    delivery_s: Floats
    """Mean delay of deliveries: queues and matching of their brokers."""
    control_messages: npt.NDArray[np.int64]
    messages: npt.NDArray[np.int64]
    """Control messages and publications that brokers have received so far, and publications that subscribers have."""
    deliveries: npt.NDArray[np.int64]
    """The last part of them."""
    moves: npt.NDArray[np.int64]
    decisions: list[BalancingDecision]
    cluster_sessions: int


def run_balancing(
    experiment: BalancingExperiment,
    policy: str,
    seed: int,
    *,
    config: BalancingConfig | None = None,
    quotes: Path | None = None,
    faults: ControlFaults | None = None,
) -> BalancingTrace:
    """One run in virtual time."""
    world = build_world(experiment, policy, seed, config=config, quotes=quotes, faults=faults)
    rows: list[tuple[object, ...]] = []
    for second in range(1, experiment.duration_s + 1):
        if second == experiment.change_s:
            double_rates(world, seed)
        world.step()
        if second % EVERY_S == 0:
            rows.append(_row(world))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    series = dict(zip(SERIES, columns, strict=True))
    return BalancingTrace(
        experiment=experiment,
        policy=policy,
        seed=seed,
        time_s=np.arange(1, len(rows) + 1, dtype=np.float64) * EVERY_S,
        decisions=world.decisions,
        cluster_sessions=sum(head.sessions for head in world.heads.values()),
        **series,
    )


def build_world(
    experiment: BalancingExperiment,
    policy: str,
    seed: int,
    *,
    config: BalancingConfig | None = None,
    quotes: Path | None = None,
    faults: ControlFaults | None = None,
) -> BalancingWorld:
    """The world of an experiment before its first second."""
    chosen = balancing_policy(policy)
    config = chosen.config if config is None else config
    workload = QuoteWorkload.draw(
        publishers=experiment.publishers,
        subscribers=experiment.subscribers,
        zero_traffic=experiment.zero_traffic,
        joins_s=experiment.joins_s,
        seed=seed,
        quotes=quotes,
    )
    has_heads = bool(experiment.neighbours)
    edges = {
        spec.name: EdgeBalancer(
            spec.name, cluster=spec.cluster, policy=chosen, head=spec.cluster if has_heads else None, config=config
        )
        for spec in experiment.brokers
    }
    heads = {
        head: ClusterBalancer(
            head,
            edges=[spec.name for spec in experiment.brokers if spec.cluster == head],
            neighbours=neighbours,
            config=config,
        )
        for head, neighbours in experiment.neighbours.items()
    }
    return BalancingWorld(
        experiment.brokers, workload, edges=edges, heads=heads, joins_at=experiment.joins_at, seed=seed, faults=faults
    )


def double_rates(world: BalancingWorld, seed: int) -> None:
    """Half of the publishers, chosen at random, publish twice as often from now on."""
    count = len(world.rates_per_s)
    world.rates_per_s[np.random.default_rng([seed, 6]).permutation(count)[: count // 2]] *= 2


def _row(world: BalancingWorld) -> tuple[object, ...]:
    fleet = world.fleet
    delays = fleet.input_queuing_s + fleet.delay_s + fleet.output_queuing_s
    rates = fleet.output_bytes_per_s
    total = float(rates.sum())
    messages = world.control_messages + world.publication_messages + world.deliveries
    return (
        fleet.input_utilization,
        fleet.output_utilization,
        fleet.delay_s,
        world.counts,
        fleet.input_queuing_s,
        fleet.output_queuing_s,
        float((delays * rates).sum() / total) if total > 0 else 0.0,
        world.control_messages,
        messages,
        world.deliveries,
        world.moves,
    )

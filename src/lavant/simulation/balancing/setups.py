"""The setups of the thesis: Tables 5.3 to 5.5, and capacities of 1:50."""

from __future__ import annotations

from lavant.simulation.balancing.brokers import BrokerSpec
from lavant.simulation.balancing.experiment import BalancingExperiment


def _brokers(rows: dict[str, tuple[float, float, float]], *, has_clusters: bool = False) -> tuple[BrokerSpec, ...]:
    """Rows of CPU speed, memory and bandwidth; broker B12 is in the cluster of B10."""
    return tuple(
        BrokerSpec(
            name=name,
            cluster=f"{name[:-1]}0" if has_clusters else "B0",
            cpu_mhz=cpu,
            memory_mb=memory,
            bandwidth_mbps=bandwidth,
        )
        for name, (cpu, memory, bandwidth) in rows.items()
    )


LOCAL = BalancingExperiment(
    name="local",
    brokers=_brokers({"B1": (100, 16, 0.5), "B2": (200, 16, 1), "B3": (400, 32, 2), "B4": (1000, 32, 5)}),
    joins_at="B1",
)
"""Section 5.2.1, Table 5.3."""

WIDE = BalancingExperiment(
    name="wide",
    brokers=_brokers({"B1": (40, 16, 0.2), "B2": (200, 16, 1), "B3": (600, 32, 3), "B4": (2000, 32, 10)}),
    joins_at="B1",
)
"""Capacities of 1:50."""

GLOBAL = BalancingExperiment(
    name="global",
    brokers=_brokers(
        {
            "B11": (300, 128, 1),
            "B12": (200, 128, 0.5),
            "B21": (350, 64, 1),
            "B22": (400, 64, 1.5),
            "B31": (266, 64, 1),
            "B32": (700, 64, 2),
            "B41": (166, 64, 0.5),
            "B42": (233, 128, 0.5),
        },
        has_clusters=True,
    ),
    joins_at="B11",
    neighbours={"B10": ("B20",), "B20": ("B10", "B30"), "B30": ("B20", "B40"), "B40": ("B30",)},
    zero_traffic=0.2,
    change_s=8000,
    duration_s=12_000,
)
"""Section 5.2.2, Table 5.4: a chain of four clusters."""

STAR = BalancingExperiment(
    name="star",
    brokers=_brokers(
        {
            "B11": (266, 64, 1),
            "B12": (700, 64, 2),
            "B21": (300, 128, 1),
            "B22": (200, 128, 0.5),
            "B31": (350, 64, 1),
            "B32": (400, 64, 1.5),
            "B41": (166, 64, 0.5),
            "B42": (233, 128, 0.5),
        },
        has_clusters=True,
    ),
    joins_at="B11",
    neighbours={"B10": ("B20", "B30", "B40"), "B20": ("B10",), "B30": ("B10",), "B40": ("B10",)},
    zero_traffic=0.2,
    change_s=None,
    duration_s=8000,
)
"""Section 5.3.2, Table 5.5."""


def equal_brokers(count: int) -> BalancingExperiment:
    """Section 5.3.1.3: edge brokers of 500 MHz, 64 MB and 3 Mbps."""
    rows = {f"B{number}": (500.0, 64.0, 3.0) for number in range(1, count + 1)}
    return BalancingExperiment(
        name=f"{count} edge brokers", brokers=_brokers(rows), joins_at="B1", change_s=None, duration_s=4000
    )


def chain(clusters: int) -> BalancingExperiment:
    """Section 5.3.2.1: clusters of two edge brokers each, all subscribers at one end."""
    heads = [f"B{number}0" for number in range(1, clusters + 1)]
    rows = {f"B{number}{edge}": (500.0, 64.0, 3.0) for number in range(1, clusters + 1) for edge in (1, 2)}
    near = {
        head: tuple(heads[other] for other in (place - 1, place + 1) if 0 <= other < clusters)
        for place, head in enumerate(heads)
    }
    return BalancingExperiment(
        name=f"chain of {clusters}",
        brokers=_brokers(rows, has_clusters=True),
        joins_at="B11",
        neighbours=near,
        zero_traffic=0.2,
        change_s=None,
        duration_s=8000,
    )

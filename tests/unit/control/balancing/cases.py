"""Loads and samples for tests of balancing."""

from __future__ import annotations

import numpy as np

from lavant.control.balancing.press import PressSample, pack
from lavant.control.balancing.values import BrokerLoad


def broker_load(
    *,
    subscriptions: int,
    capacity: float = 1.0,
    rate_per_s: float = 10.0,
    output: float = 0.0,
    bandwidth: float = 1000.0,
) -> BrokerLoad:
    """A broker whose matching delay is .0001 s a subscription at capacity 1; outputs in publications of a byte."""
    return BrokerLoad(
        subscriptions=subscriptions,
        input_rate_per_s=rate_per_s,
        matching_delay_s=0.0001 * subscriptions / capacity,
        matching_delay_slope_s=0.0001 / capacity,
        output_bytes_per_s=output,
        bandwidth_bytes_per_s=bandwidth * capacity,
        publication_bytes=1.0,
    )


def sample_of(
    vectors: dict[str, list[int]], *, publications: int, rate_per_s: float, peers: dict[str, list[int]]
) -> PressSample:
    """A sample in which each subscription matched the given publications."""
    bits = np.zeros((len(vectors), publications), np.bool_)
    for row, matched in enumerate(vectors.values()):
        bits[row, matched] = True
    of_peers = np.zeros((len(peers), publications), np.bool_)
    for row, received in enumerate(peers.values()):
        of_peers[row, received] = True
    return PressSample(
        subscriptions=list(vectors),
        vectors=pack(bits),
        peers=dict(zip(peers, pack(of_peers), strict=True)),
        publications=publications,
        input_rate_per_s=rate_per_s,
        publication_bytes=1.0,
    )


def random_sample(
    seed: int, *, subscriptions: int, publications: int, rate_per_s: float, peers: list[str]
) -> PressSample:
    """Subscriptions from none to all publications, and peers that receive about half."""
    random = np.random.default_rng(seed)
    share = random.choice([0.0, 0.02, 0.1, 0.5, 1.0], subscriptions, p=[0.25, 0.45, 0.2, 0.08, 0.02])
    bits = random.random((subscriptions, publications)) < share[:, None]
    return PressSample(
        subscriptions=[f"s{number}" for number in range(subscriptions)],
        vectors=pack(bits),
        peers={peer: pack(random.random((1, publications)) < 0.5)[0] for peer in peers},
        publications=publications,
        input_rate_per_s=rate_per_s,
        publication_bytes=1.0,
    )

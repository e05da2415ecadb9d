"""Match offload: evens out matching delays with the subscriptions that have the least traffic (Section 4.2.2).

Subscriptions without traffic change neither input nor output rates. The candidate with the least output plus extra
input goes first (*extra traffic*), until delays are even; an overloaded broker goes on until CPU, memory and input
are below the lower overload threshold (Figure 4.6).
"""

from __future__ import annotations

import numpy as np

from lavant.control.balancing.offload.report_cards import PairOffload


def offload_match(offload: PairOffload) -> None:
    """Chooses subscriptions until delays are balanced, or no candidate is left or fits."""
    config = offload.config
    is_overloaded = offload.is_overloaded
    while True:
        before = (offload.ours.matching_delay_s - offload.theirs.matching_delay_s) / config.delay_unit_s
        if (before < config.balance and not is_overloaded) or (is_overloaded and not offload.is_overloaded):
            return
        cards = offload.cards()
        if is_overloaded:
            highest = np.maximum(np.maximum(cards.ours.cpu, cards.ours.memory), cards.ours.input)
            is_balanced = highest < config.overload_low
        else:
            difference = (cards.ours.delay_s - cards.theirs.delay_s) / config.delay_unit_s
            is_balanced = (difference < 0) | (np.abs(difference) < config.balance)
        counts = cards.choose_counts(is_balanced)
        possible = np.flatnonzero(counts > 0)
        if len(possible) == 0:
            return
        traffic = (offload.candidates.rates_per_s + cards.extra_per_s)[possible]
        cards.take(int(possible[np.argmin(traffic)]), counts)

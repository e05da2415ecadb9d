"""Input offload: evens out the input utilisation of two brokers (Section 4.2.1, Figures 4.1 to 4.4).

Only subscriptions of the offloading broker's covering set can lower its input rate, so those are the candidates; each
one that leaves uncovers others. The candidate that brings both brokers closest together goes first.

Section 4.2 wants each algorithm to leave the other indices alone, and Figure 4.8 guards the input against output
offload. Here the output is guarded against input offload in the same way: no move may bring the accepting broker's
output utilisation more than the detection threshold above ours. Without it, the two undo each other's work for hours.
An input-overloaded broker is exempt.

Input utilisation is input rate times matching delay. Where our delay is the longer one, subscriptions with the least
traffic go first, until delays are even: the covering set alone would even out the product of a low rate and a long
delay. The accepting broker sends none of them back, since its delay is not above ours afterwards; that is why Section
4.2.1 has match offload for overloaded brokers only. If guards leave a difference above the threshold, subscriptions
with the least traffic go too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.offload.match_offload import offload_match
from lavant.control.balancing.offload.report_cards import LEAST_GAIN, PairOffload, best_card

LEFT = 0.8
"""Of the threshold: the difference that may be left if it is evened out by the matching delay alone, once delays are
even. Going further would make delays as uneven as inputs were."""


def offload_input(offload: PairOffload) -> None:
    """Chooses subscriptions until the brokers are balanced, no candidate is left, or each would make it worse.

    If the broker stays input overloaded because its covering set fits nowhere, match offload goes on (end of 4.2.1).
    """
    config = offload.config
    is_overloaded = offload.ours.input_utilization >= config.overload_low
    if not is_overloaded:
        _lower_delay(offload, left=math.inf)
    while True:
        before = offload.ours.input_utilization - offload.theirs.input_utilization
        if before < config.balance:
            return
        cards = offload.cards()
        difference = cards.ours.input - cards.theirs.input
        above = cards.theirs.output - cards.ours.output > config.ratio_threshold + config.tolerance
        is_allowed = np.ones(len(above), np.bool_) if is_overloaded else ~above
        counts = cards.choose_counts((difference < 0) | (np.abs(difference) < config.balance), is_allowed)
        counts = np.where(offload.candidates.covering(), counts, 0)
        reduced = cards.reduced_per_s(counts)
        ties = (reduced, counts.astype(np.float64))
        best = best_card(cards.at(difference, counts), ties, before=before, is_overloaded=is_overloaded)
        if best is None:
            break
        cards.take(best, counts)
    if is_overloaded and offload.ours.input_utilization >= config.overload_low:
        offload_match(offload)
    elif not is_overloaded and before > config.ratio_threshold + config.tolerance:
        _lower_delay(offload, left=LEFT * config.ratio_threshold)


def _lower_delay(offload: PairOffload, *, left: float) -> None:
    """Moves candidates with the least traffic until inputs are even, or until delays are and at most `left` of the
    difference between inputs is left.
    """
    while _take_least_traffic(offload, left):
        pass


def _take_least_traffic(offload: PairOffload, left: float) -> bool:
    """As for output, the accepting broker's delay may not pass ours by more than the threshold. Where its output is
    that far above ours already, candidates without traffic may go: they leave it as it is.
    """
    config, cards = offload.config, offload.cards()
    ours, theirs = offload.ours, offload.theirs
    now = ours.input_utilization - theirs.input_utilization
    if _is_even(now, ours.matching_delay_s - theirs.matching_delay_s, left, config):
        return False
    difference, longer_s = cards.ours.input - cards.theirs.input, cards.ours.delay_s - cards.theirs.delay_s
    output_max = max(config.ratio_threshold, theirs.output_utilization - ours.output_utilization)
    above = cards.theirs.output - cards.ours.output > output_max + config.tolerance
    above |= -longer_s / config.delay_unit_s > config.delay_threshold + config.tolerance
    counts = cards.choose_counts(_is_even(difference, longer_s, left, config), ~above)
    after = np.abs(cards.at(difference, counts))
    better = np.flatnonzero((counts > 0) & (after < now - LEAST_GAIN))
    if len(better) == 0:
        return False
    traffic = (offload.candidates.rates_per_s + cards.extra_per_s)[better]
    cards.take(int(better[np.argmin(traffic)]), counts)
    return True


def _is_even(difference: Any, longer_s: Any, left: float, config: BalancingConfig) -> Any:
    """Whether the input is: entirely if delays become more even with it, but for `left` otherwise. Takes numbers, or
    columns of cards.
    """
    is_delay_even = longer_s / config.delay_unit_s <= config.balance
    return (difference <= config.balance) | ((difference <= left) & is_delay_even)

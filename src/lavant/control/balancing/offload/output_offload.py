"""Output offload: evens out the output utilisation of two brokers (Section 4.2.3, Figures 4.8 to 4.10).

*Phase I* moves subscriptions that add no input at the accepting broker, in the order of their type:

| type | in our covering set | all subscribers leave | effect |
| --- | --- | --- | --- |
| I | yes | yes | our input falls |
| II | yes | no | our input could fall |
| III | no | | |

*Phase II* moves others, and returns to Phase I as soon as one of them has covered further candidates. Figure 4.8's
guard against a loop with input offload is read as the text has it: no move may bring the accepting broker's *input*
utilisation more than the detection threshold above ours. An output-overloaded broker is exempt until it is at the
lower overload threshold.
"""

from __future__ import annotations

import numpy as np

from lavant.control.balancing.offload.report_cards import Cards, Counts, Flags, PairOffload, best_card


def offload_output(offload: PairOffload) -> None:
    """Chooses subscriptions until outputs are balanced, or no candidate is left, allowed or better than none."""
    while _step(offload):
        pass


def _step(offload: PairOffload) -> bool:
    config = offload.config
    before = offload.ours.output_utilization - offload.theirs.output_utilization
    if before < config.balance:
        return False
    is_overloaded = offload.ours.output_utilization >= config.overload_low
    cards = offload.cards()
    difference = cards.ours.output - cards.theirs.output
    guarded = cards.theirs.input - cards.ours.input > config.ratio_threshold + config.tolerance
    is_allowed = np.ones(len(guarded), np.bool_) if is_overloaded else ~guarded
    is_balanced = (difference < 0) | (np.abs(difference) < config.balance)
    counts = cards.choose_counts(is_balanced, is_allowed)
    after = cards.at(difference, counts)
    for members, ties in _lists(offload, cards, counts):
        among = np.where(members, after, np.inf)
        best = best_card(among, ties, before=before, is_overloaded=is_overloaded)
        if best is not None:
            cards.take(best, counts)
            return True
    return False


def _lists(
    offload: PairOffload, cards: Cards, counts: Counts
) -> list[tuple[Flags, tuple[np.typing.NDArray[np.float64], ...]]]:
    """The candidates of types I, II and III, then those of Phase II, each with the values that break ties."""
    covered = (cards.extra_per_s == 0) & (counts > 0)
    reduced = cards.reduced_per_s(counts)
    reducible = cards.reducible_per_s
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = offload.candidates.rates_per_s
        bytes_per_s = rates * offload.ours.publication_bytes
        gamma = np.nan_to_num(rates * bytes_per_s * counts / cards.extra_per_s, nan=0.0)
    """γ of (4.19), infinite for a candidate that adds no input."""
    return [
        (covered & (reduced > 0), (reduced,)),
        (covered & (reduced == 0) & (reducible > 0), (reduced,)),
        (covered & (reducible == 0), (reduced,)),
        (~covered & (counts > 0), (gamma,)),
    ]

"""The `shares` policy, the default: computes each broker's share, and moves what is missing in one session.

The thesis evens out two brokers and one index at a time; load then runs through several brokers, and a session for one
index undoes what another has done. This policy asks all less loaded brokers at once and plans for all of them and all
three indices:

* **Shares.** The matching delay grows with the subscriptions, along each broker's own slope. The delay at which all
  brokers of the session are equal gives the number of subscriptions that each should have; the same for output bytes,
  by bandwidth. A broker that has more than its share takes nothing, and the others share the rest.
* **Candidates by weight.** Subscriptions are given out by falling traffic, each to the broker that lacks the largest
  part of its output share, the own one included, as long as its number allows. Those without traffic fill up the
  numbers. So heavy subscriptions, which attract most of the input, spread over all brokers, and input follows.
* **Common input together.** Between brokers that lack about as much, a subscription goes where its publications already
  arrive.
* **Refinement.** Then single subscriptions change sides as long as that makes the brokers more even (`refinement`).
* **Least moves.** What a broker may keep it keeps, and nothing moves towards a broker that will have to give it away.

A session starts from a difference of `TRIGGER` of the thesis's thresholds, or at the overload threshold. An overloaded
broker waits for nobody: a peer that is busy takes part in the next session. Others save messages: a broker is
STABILIZING while subscribers join it, and waits until all brokers with less load are available; both for
`stable_ms_max` at most. Each session costs the same few dozen messages whether it moves ten subscriptions or two
hundred.
"""

from __future__ import annotations

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.detection import Thresholds, overload
from lavant.control.balancing.policies.interface import Neighbourhood, OffloadPlan, OpenSession, Proposal
from lavant.control.balancing.policies.share_plan import SharePlan
from lavant.control.balancing.values import BalancingStatus, BrokerLoad, LoadIndex

TRIGGER = 0.4
"""Of the thresholds of the thesis."""


class SharesPolicy:
    """Solves for shares directly."""

    name = "shares"
    config = BalancingConfig(
        detection_ms_min=5_000,
        detection_ms_max=10_000,
        stable_ms=10_000,
        stable_window_ms=10_000,
        stable_ms_max=75_000,
        deferral_ms_max=10_000,
        press_samples=200,
    )
    samples = True

    def propose(self, view: Neighbourhood) -> list[Proposal]:
        open_peers = {peer: report.load for peer, report in view.peers.items() if report.status is BalancingStatus.OK}
        found = overload(view.load, view.config.overload_high)
        if found is not None:
            reason = f"{found.resource} utilisation of {view.broker} is {found.utilization:.2f}"
            peers = tuple(peer for peer, load in open_peers.items() if _lacks(load, view.load))
            return [_proposal(peers, reason, {found.resource: found.utilization})] if peers else []
        config = view.config
        thresholds = Thresholds(
            config.ratio_threshold * TRIGGER, config.delay_threshold * TRIGGER, config.delay_unit_s, config.tolerance
        )
        differing = {
            peer: exceeded for peer, load in open_peers.items() if (exceeded := thresholds.exceeded(view.load, load))
        }
        if not differing or self._should_wait(view):
            return []
        value, index, peer = max(
            (value, index, peer) for peer, exceeded in differing.items() for index, value in exceeded.items()
        )
        reason = f"{index} load of {view.broker} is {value:.2f} above that of {peer}"
        peers = tuple(peer for peer, load in open_peers.items() if _lacks(load, view.load))
        return [_proposal(peers, reason, {str(index): value})]

    def _should_wait(self, view: Neighbourhood) -> bool:
        """Whether brokers with less load are in a session or settle: they refuse, and without them the others would get
        too much.
        """
        return view.unsettled_ms < view.config.stable_ms_max and any(
            report.status is not BalancingStatus.OK and _lacks(report.load, view.load) for report in view.peers.values()
        )

    def plan(self, session: OpenSession) -> OffloadPlan:
        return SharePlan(session).solve()


def _lacks(load: BrokerLoad, ours: BrokerLoad) -> bool:
    """Whether a broker is below ours in any index."""
    return (
        load.input_utilization < ours.input_utilization
        or load.output_utilization < ours.output_utilization
        or load.matching_delay_s < ours.matching_delay_s
    )


def _proposal(peers: tuple[str, ...], reason: str, figures: dict[str, float]) -> Proposal:
    return Proposal(index=LoadIndex.SHARES, peers=peers, reason=reason, figures=figures)

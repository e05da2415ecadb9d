"""The `thesis` policy: pairs of brokers, one index at a time (Figure 3.5 and Section 4.2).

    overloaded?   ask the others by rising load of that index, whatever the difference
    else          ask those whose index is lower by more than the threshold, the largest difference first;
                  but while another broker is N/A, defer to it

Only those that report OK are asked: the thesis asks all that are not N/A, and those in a session refuse. A report of OK
wakes the detector, so nothing is lost but the messages.

Deferring ends after `deferral_ms_max`, and so does the inert band between the overload thresholds: a cluster whose
output is near .9 would wait for ever otherwise.
"""

from __future__ import annotations

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.detection import Thresholds, differences, overload
from lavant.control.balancing.offload.input_offload import offload_input
from lavant.control.balancing.offload.match_offload import offload_match
from lavant.control.balancing.offload.output_offload import offload_output
from lavant.control.balancing.offload.report_cards import PairOffload
from lavant.control.balancing.policies.interface import Neighbourhood, OffloadPlan, OpenSession, Proposal
from lavant.control.balancing.values import BalancingStatus, LoadIndex, LoadReport, SubscriptionMove

OFFLOADS = {LoadIndex.INPUT: offload_input, LoadIndex.MATCH: offload_match, LoadIndex.OUTPUT: offload_output}


class ThesisPolicy:
    """Cheung's algorithms with the guards that the text leaves open."""

    name = "thesis"
    config = BalancingConfig()
    samples = True

    def propose(self, view: Neighbourhood) -> list[Proposal]:
        found = overload(view.load, view.config.overload_high)
        if found is not None:
            why = f"{found.resource} utilisation of {view.broker} is {found.utilization:.2f}, above the threshold"
            return [
                _proposal(view, report, found.index, why)
                for report in sorted(
                    view.peers.values(), key=lambda report: (_value(report, found.index), report.broker)
                )
                if report.status is BalancingStatus.OK
            ]
        has_waited = view.waited_ms >= view.config.deferral_ms_max
        if view.status is BalancingStatus.NOT_AVAILABLE and not has_waited:
            return []
        if any(report.status is BalancingStatus.NOT_AVAILABLE for report in view.peers.values()) and not has_waited:
            return []
        return self._differing(view)

    def _differing(self, view: Neighbourhood) -> list[Proposal]:
        thresholds = Thresholds.of(view.config)
        found = [
            (value, report, index)
            for report in view.peers.values()
            if report.status is BalancingStatus.OK
            for index, value in thresholds.exceeded(view.load, report.load).items()
        ]
        found.sort(key=lambda each: (-each[0], each[1].broker, each[2]))
        return [
            _proposal(
                view, report, index, f"{index} load of {view.broker} is {value:.2f} above that of {report.broker}"
            )
            for value, report, index in found
        ]

    def plan(self, session: OpenSession) -> OffloadPlan:
        (peer, load), *_ = session.peers.items()
        offload = PairOffload(session.load, load, sample=session.sample, peer=peer, config=session.config)
        OFFLOADS[session.index](offload)
        moves = tuple(SubscriptionMove(subscription=name, destination=peer) for name in offload.chosen[peer])
        return OffloadPlan(moves=moves, predicted={session.broker: offload.ours, peer: offload.theirs})


def _value(report: LoadReport, index: LoadIndex) -> float:
    load = report.load
    values = {
        LoadIndex.INPUT: load.input_utilization,
        LoadIndex.OUTPUT: load.output_utilization,
        LoadIndex.MATCH: load.matching_delay_s,
    }
    return values[index]


def _proposal(view: Neighbourhood, report: LoadReport, index: LoadIndex, reason: str) -> Proposal:
    figures = {
        str(name): value for name, value in differences(view.load, report.load, view.config.delay_unit_s).items()
    }
    return Proposal(index=index, peers=(report.broker,), reason=reason, figures=figures)

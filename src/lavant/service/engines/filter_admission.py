"""Filters on their way into an engine: parsed, checked against the quota of their namespace, and counted.

`prepare` and `tell` take long and belong into the engine's thread; the others are quick, and may be called in the loop
while neither of those two runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lavant.broker.protocol.subscriptions import Subscribe, SubscriptionState, Unsubscribe
from lavant.broker.subscriptions.filter_quota import FilterQuota, Filters, Lane
from lavant.broker.subscriptions.limits import SubscriptionLimits
from lavant.broker.subscriptions.registry import Change
from lavant.core.errors import LavantError
from lavant.service.engines.filters import prepared_filter, scheme_of, steps_of
from lavant.service.engines.interface import Engine


class FilterAdmission:
    """For one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._quota = FilterQuota(engine.lanes_max)

    def prepare(self, subscribes: Iterable[Subscribe]) -> list[Filters | LavantError]:
        """The filters as the engine takes them, or why they cannot be matched."""
        prepared: list[Filters | LavantError] = []
        for request in subscribes:
            try:
                prepared.append(prepared_filter(request.filter))
            except LavantError as error:
                prepared.append(error)
        return prepared

    def problem(
        self, request: Subscribe | Unsubscribe, filters: Filters | LavantError | None, limits: SubscriptionLimits
    ) -> LavantError | None:
        """Why a request is refused: by what `prepare` said, or by what is there; none if it is not."""
        if isinstance(request, Unsubscribe) or filters is None or isinstance(filters, LavantError):
            return filters if isinstance(filters, LavantError) else None
        try:
            self._quota.check(_lane(request), filters, limits)
        except LavantError as error:
            return error
        return None

    def promise(self, subscription: SubscriptionState, filters: Filters) -> None:
        """It was accepted: the next is checked with it, and the engine is going to be told."""
        self._quota.promise(_lane(subscription), filters)

    def tell(self, changes: Sequence[Change], prepared: Mapping[int, Filters]) -> None:
        """The engine learns of changes, and they count. Filters that were prepared are given by number."""
        steps = list(steps_of(changes, prepared))
        self._engine.change(steps)
        for step in steps:
            self._quota.count(step.lane, step.filters, is_removal=step.serials is None)
        self._quota.keep_promises()


def _lane(subscription: Subscribe | SubscriptionState) -> Lane:
    return Lane(subscription.namespace, scheme_of(subscription.filter))

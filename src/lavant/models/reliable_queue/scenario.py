"""A scenario of the reliable queue, and its TOML file, which every predictor reads.

[arrivals]
rate = 30.3                  # messages a second
scv = 1.0                    # squared coefficient of variation of the times between them; 1 is Poisson

[senders]                    # leave this table out if messages come to the queue by themselves
count = 6
service_s = 0.1              # mean time to send a message
service_scv = 1.0
distribution = "gamma"       # or "lognormal", "hyperexponential"; with a variability of 1, gamma is exponential

[consumers]
count = 6
service_s = 0.1              # mean time to process a message
service_scv = 1.0
distribution = "gamma"

[queue]
order = "out-of-order"       # or "in-order": messages start in the order in which they were produced
visibility_s = 30.0
timer = "receive"            # the timeout starts when a consumer takes a message; "send": when it is done with it
loss = 0.01                  # probability that a delivery is lost
link_s = 0.0                 # one-way delay of the network

[goal]                       # only for plans
delivery_s = 0.5
percentile = 0.95            # of the delivery time; without it, delivery_s is about the mean
duplicates = 0.01            # messages that may be processed twice because the timeout is short
"""

from __future__ import annotations

import math
from enum import StrEnum
from numbers import Integral, Real
from typing import Annotated

import msgspec

from lavant.core.errors import InvalidValue
from lavant.core.validation.toml_file import TomlFile
from lavant.models.network import RATE_PER_S_MAX, SCV_MAX

COUNT_MAX = 100_000
SECONDS_MAX = 30 * 24 * 3600.0

Seconds = Annotated[float, msgspec.Meta(gt=0, le=SECONDS_MAX)]
SecondsOrNone = Annotated[float, msgspec.Meta(ge=0, le=SECONDS_MAX)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=RATE_PER_S_MAX)]
Scv = Annotated[float, msgspec.Meta(ge=0, le=SCV_MAX)]
Count = Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]
Probability = Annotated[float, msgspec.Meta(ge=0, lt=1)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class ServiceFamily(StrEnum):
    """A distribution of service times, given by its mean and variability."""

    GAMMA = "gamma"
    LOGNORMAL = "lognormal"
    HYPEREXPONENTIAL = "hyperexponential"


class DeliveryOrder(StrEnum):
    OUT_OF_ORDER = "out-of-order"
    IN_ORDER = "in-order"
    """Messages start in the order in which they were produced."""


class TimerStart(StrEnum):
    """When the visibility timeout of a message starts."""

    RECEIVE = "receive"
    """When a consumer takes it, as in Lavant and SQS."""
    SEND = "send"
    """When a thread of the broker has sent it, as in the paper: a timeout cannot pass during the service."""


class ServiceTime(msgspec.Struct, frozen=True, kw_only=True):
    mean_s: float
    scv: float = 1.0
    family: ServiceFamily = ServiceFamily.GAMMA

    def __post_init__(self) -> None:
        _require(_is_number(self.mean_s) and self.mean_s > 0, "mean_s", self.mean_s, "a time above 0")
        _require(_is_number(self.scv) and self.scv >= 0, "scv", self.scv, "a number from 0 on")
        _coerce(self, "family", ServiceFamily)
        if self.family is ServiceFamily.HYPEREXPONENTIAL and self.scv < 1:
            raise InvalidValue(f"a hyperexponential time has a service_scv of 1 or more, got {self.scv:g}; take gamma")


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """Threads that serve messages: senders, or consumers."""

    count: int
    service: ServiceTime

    def __post_init__(self) -> None:
        is_count = isinstance(self.count, Integral) and not isinstance(self.count, bool) and self.count >= 1
        _require(is_count, "count", self.count, "a whole number from 1 on")

    @property
    def rate_per_s(self) -> float:
        """Messages that all threads together can serve in a second."""
        return self.count / self.service.mean_s


class QueueScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A load, the threads that serve it, and the queue between them."""

    arrival_rate_per_s: float
    arrival_scv: float = 1.0
    senders: Phase | None = None
    """None: messages come to the queue by themselves."""
    consumers: Phase
    loss: float = 0.0
    visibility_s: float = 30.0
    timer: TimerStart = TimerStart.RECEIVE
    order: DeliveryOrder = DeliveryOrder.OUT_OF_ORDER
    link_s: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (
            ("arrival_rate_per_s", 5e-324),
            ("arrival_scv", 0.0),
            ("visibility_s", 0.0),
            ("link_s", 0.0),
        ):
            value = getattr(self, name)
            _require(
                _is_number(value) and value >= least, name, value, "a number above 0" if least else "a number from 0 on"
            )
        _require(_is_number(self.loss) and 0 <= self.loss < 1, "loss", self.loss, "a number from 0 to below 1")
        _coerce(self, "timer", TimerStart)
        _coerce(self, "order", DeliveryOrder)

    @property
    def in_time_s(self) -> float:
        """The longest service whose acknowledgement is back before the timeout."""
        return self.visibility_s - 2.0 * self.link_s

    @property
    def is_acknowledged_late(self) -> bool:
        """Whether a timer that starts when a message is sent runs out before its acknowledgement can be back."""
        return self.timer is TimerStart.SEND and self.link_s > 0 and self.in_time_s <= 0


class QueueGoal(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan has to reach."""

    delivery_s: float | None = None
    percentile: float | None = None
    """Of the delivery time; None: its mean."""
    duplicates: float = 0.01
    """Messages that may be processed twice because the timeout is short, as a share."""

    def __post_init__(self) -> None:
        if self.delivery_s is not None:
            is_time = _is_number(self.delivery_s) and self.delivery_s > 0
            _require(is_time, "delivery_s", self.delivery_s, "a time above 0")
        if self.percentile is not None:
            require_percentile(self.percentile)
        is_share = _is_number(self.duplicates) and 0 < self.duplicates < 1
        _require(is_share, "duplicates", self.duplicates, "a share between 0 and 1")


def require_percentile(fraction: float) -> None:
    if not _is_number(fraction) or not 0 < fraction < 1:
        raise InvalidValue(f"a percentile is a share between 0 and 1, such as 0.95, got {fraction}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _require(is_right: bool, name: str, value: object, wanted: str) -> None:
    if not is_right:
        raise InvalidValue(f"{name} must be {wanted}, got {value}")


def _coerce(struct: msgspec.Struct, name: str, kind: type[StrEnum]) -> None:
    """Take a choice by its text, too."""
    given = getattr(struct, name)
    if not isinstance(given, kind):
        if given not in list(kind):
            raise InvalidValue(f"{name} must be one of {', '.join(kind)}, got {given}")
        msgspec.structs.force_setattr(struct, name, kind(given))


class _Arrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate: Rate
    scv: Scv = 1.0


class _Threads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: Count
    service_s: Seconds
    service_scv: Scv = 1.0
    distribution: ServiceFamily = ServiceFamily.GAMMA

    @property
    def phase(self) -> Phase:
        service = ServiceTime(mean_s=self.service_s, scv=self.service_scv, family=self.distribution)
        return Phase(count=self.count, service=service)


class _Queue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    order: DeliveryOrder = DeliveryOrder.OUT_OF_ORDER
    visibility_s: SecondsOrNone = 30.0
    timer: TimerStart = TimerStart.RECEIVE
    loss: Probability = 0.0
    link_s: SecondsOrNone = 0.0


class _Goal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    delivery_s: Seconds | None = None
    percentile: Share | None = None
    duplicates: Share = 0.01


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    arrivals: _Arrivals
    consumers: _Threads
    senders: _Threads | None = None
    queue: _Queue = _Queue()
    goal: _Goal = _Goal()


_CHOICES = {
    "distribution": "gamma, lognormal or hyperexponential",
    "order": "out-of-order or in-order",
    "timer": "receive or send",
}


class ScenarioFile:
    """The contents of a file: the scenario and the goal."""

    def __init__(self, text: str, *, name: str) -> None:
        toml = TomlFile(text, name=name)
        file = toml.converted(_File, choices=_CHOICES)
        with toml.located("consumers", "distribution"):
            consumers = file.consumers.phase
        with toml.located("senders", "distribution"):
            senders = None if file.senders is None else file.senders.phase
        queue = file.queue
        if queue.timer is TimerStart.RECEIVE and not queue.visibility_s > 0:
            toml.refuse(
                "visibility_s is 0: a message would be visible to all consumers at once; give a time above 0",
                *("queue", "visibility_s"),
            )
        if file.goal.percentile is not None and file.goal.delivery_s is None:
            toml.refuse("percentile is about a delivery_s, and there is none", "goal", "percentile")
        self.scenario = QueueScenario(
            arrival_rate_per_s=file.arrivals.rate,
            arrival_scv=file.arrivals.scv,
            senders=senders,
            consumers=consumers,
            loss=queue.loss,
            visibility_s=queue.visibility_s,
            timer=queue.timer,
            order=queue.order,
            link_s=queue.link_s,
        )
        self.goal = QueueGoal(
            delivery_s=file.goal.delivery_s, percentile=file.goal.percentile, duplicates=file.goal.duplicates
        )


def scenario_text(scenario: QueueScenario, *, remark: str = "") -> str:
    """A scenario as a file."""
    lines = [f"# {line}".rstrip() for line in remark.splitlines()]
    lines += ["[arrivals]", f"rate = {scenario.arrival_rate_per_s:.6g}", f"scv = {scenario.arrival_scv:.6g}"]
    for name, phase in (("senders", scenario.senders), ("consumers", scenario.consumers)):
        if phase is not None:
            service = phase.service
            lines += ["", f"[{name}]", f"count = {phase.count}", f"service_s = {service.mean_s:.6g}"]
            lines += [f"service_scv = {service.scv:.6g}", f'distribution = "{service.family}"']
    lines += ["", "[queue]", f'order = "{scenario.order}"', f"visibility_s = {scenario.visibility_s:.6g}"]
    lines += [f'timer = "{scenario.timer}"', f"loss = {scenario.loss:.6g}", f"link_s = {scenario.link_s:.6g}"]
    return "\n".join(lines) + "\n"

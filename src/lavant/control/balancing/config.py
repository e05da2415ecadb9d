"""Parameters of the balancing loop, with the defaults of Table 5.2 of the thesis."""

from __future__ import annotations

import msgspec

from lavant.core.errors import InvalidValue


class BalancingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Table 5.2, and the deadlines that the thesis leaves open."""

    report_ratio_threshold: float = 0.025
    report_delay_threshold: float = 0.025
    """PIE: a report is published if a ratio changed by the first, or a delay by the second times `delay_unit_s`."""
    report_period_ms: int = 30_000
    cluster_report_period_ms: int = 60_000
    report_periods_max: int = 3
    """A report expires after so many periods; every second one is published even if nothing changed (keep-alive)."""

    press_samples: int = 50
    press_timeout_ms: int = 30_000

    overload_low: float = 0.9
    overload_high: float = 0.95
    ratio_threshold: float = 0.1
    delay_threshold: float = 0.1
    cluster_ratio_threshold: float = 0.15
    cluster_delay_threshold: float = 0.15
    delay_unit_s: float = 0.1
    """N_f of (3.5): differences between delays are fractions of it."""
    balance: float = 0.005
    """Balance percentage: a session ends within it."""
    tolerance: float = 1e-9
    """Comparisons with thresholds forgive so much: .1 is no double."""

    stable_ms: int = 30_000
    stable_change: float = 0.05
    stable_window_ms: int = 60_000
    stable_ms_max: int = 300_000
    """A load that never settles does not keep a broker STABILIZING for ever."""

    detection_ms_min: int = 20_000
    detection_ms_max: int = 40_000
    cluster_detection_ms_min: int = 50_000
    cluster_detection_ms_max: int = 70_000
    smoothing: float = 0.75
    """α of (3.4)."""
    help_requests_max: int = 3
    """Global load balancing request threshold: a busy cluster ends its session after so many."""
    deferral_ms_max: int = 120_000
    """How long an OK broker defers to overloaded ones (Section 3.3.2.3)."""

    reply_ms: int = 5_000
    """Until a request counts as refused."""
    migration_ms: int = 10_000
    """Migration timeout per subscription (Section 3.4.2)."""
    lease_ms: int = 60_000
    """Until an accepting broker leaves a session whose other side is silent; requests are repeated to renew it."""
    session_ms_max: int = 600_000
    """Until an offloading broker no longer waits for its moves."""
    cluster_session_ms_max: int = 1_800_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise InvalidValue(f"{name} must be positive, got {getattr(self, name)}")
        for low, high in (
            ("overload_low", "overload_high"),
            ("detection_ms_min", "detection_ms_max"),
            ("cluster_detection_ms_min", "cluster_detection_ms_max"),
            ("ratio_threshold", "cluster_ratio_threshold"),
            ("delay_threshold", "cluster_delay_threshold"),
            ("stable_ms", "stable_ms_max"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise InvalidValue(
                    f"{low} must be at most {high}, got {getattr(self, low)} and {getattr(self, high)}; "
                    "raise the second or lower the first"
                )
        if self.smoothing > 1:
            raise InvalidValue(f"smoothing must be at most 1, got {self.smoothing}")

    @property
    def report_expiry_ms(self) -> int:
        return self.report_periods_max * self.report_period_ms

    @property
    def cluster_report_expiry_ms(self) -> int:
        return self.report_periods_max * self.cluster_report_period_ms

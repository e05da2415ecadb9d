"""Telemetry of a directory or of a running server, as input of plans."""

from __future__ import annotations

from pathlib import Path

import msgspec

from lavant.cli.reports.fetch import fetch
from lavant.control.allocation.system.toml_text import system_text
from lavant.core.errors import InvalidValue, MissingComponent
from lavant.core.estimation import TelemetryHistory, read_history
from lavant.core.files import local_path
from lavant.models.calibration import NO_JOB, fit
from lavant.models.reliable_queue import Phase, QueueScenario, ServiceTime


def history(source: str, key: str, ca_file: Path | None, *, window_s: int = 600) -> TelemetryHistory:
    """Estimates from a directory, or from a server by its address (`lavant://…`, `http://…`)."""
    if source.partition("://")[0] in {"lavant", "lavants", "http", "https"}:
        try:
            return msgspec.json.decode(fetch(source, "/telemetry", key, ca_file), type=TelemetryHistory)
        except msgspec.DecodeError as error:
            raise MissingComponent(f"{source} answers with something else than telemetry: {error}") from None
    return read_history(local_path(Path(source)), window_ms=window_s * 1000)


def fitted_text(found: TelemetryHistory, *, rates_per: str = "second") -> str:
    """A system file with the network that was observed."""
    first_us = {(seen.job_type, seen.topic): seen.time_us for seen in found.first_seen}
    fitted = fit(found.estimates, first_us, length_s=found.length_s)
    left_out = (
        f"Left out, because nothing was consumed from them: {', '.join(fitted.left_out)}.\n" if fitted.left_out else ""
    )
    remark = (
        f"Fitted to {found.rows:,} rows of telemetry, {found.length_s:,.0f} s of it.\n"
        "Routes are in the order in which topics saw a job type first; check it.\n"
        f"{left_out}"
        "Add a [goal] with response_s or budget, and costs and limits where they are not 1 and 1000."
    )
    return system_text(fitted.network, rates_per=rates_per, remark=remark)


def queue_scenario(found: TelemetryHistory, queue: str, *, consumers: int | None, loss: float) -> QueueScenario:
    """The load of one queue. The consumers are those given, or the fewest that can do the work."""
    names = sorted({each.topic for each in found.estimates if each.job_type == NO_JOB and each.arrivals})
    here = [each for each in found.estimates if each.job_type == NO_JOB and each.topic == queue]
    if not here:
        known = f"there are {', '.join(names)}" if names else "there is no queue in it"
        raise InvalidValue(f"the telemetry has no queue {queue!r}; {known}")
    fitted = fit(here, {}, length_s=found.length_s).network
    (topic,), (job,) = fitted.topics, fitted.jobs
    service = ServiceTime(mean_s=1.0 / topic.service_rate_per_s, scv=topic.service_scv)
    least = int(job.arrival_rate_per_s * service.mean_s / (1.0 - loss)) + 1
    return QueueScenario(
        arrival_rate_per_s=job.arrival_rate_per_s,
        arrival_scv=job.arrival_scv,
        consumers=Phase(count=least if consumers is None else consumers, service=service),
        loss=loss,
    )

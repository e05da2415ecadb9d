"""Telemetry: counts and times of each stage of a publication, as rows in Parquet files and as metrics."""

from lavant.service.observability.telemetry.files import TelemetryFiles
from lavant.service.observability.telemetry.stages import Stages
from lavant.service.observability.telemetry.telemetry import Telemetry

__all__ = ["Stages", "Telemetry", "TelemetryFiles"]

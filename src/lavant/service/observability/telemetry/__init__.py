"""What the service observes of itself: at each stage how many and how long, as rows in files and as figures."""

from lavant.service.observability.telemetry.files import TelemetryFiles
from lavant.service.observability.telemetry.stages import Stages
from lavant.service.observability.telemetry.telemetry import Telemetry

__all__ = ["Stages", "Telemetry", "TelemetryFiles"]

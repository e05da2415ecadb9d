"""What the service observes of itself: at each stage how many and how long, as rows in files and as figures."""

from lavant.service.telemetry.files import TelemetryFiles
from lavant.service.telemetry.stages import Stages
from lavant.service.telemetry.telemetry import Telemetry

__all__ = ["Stages", "Telemetry", "TelemetryFiles"]

"""The publisher and the tuning of its batches: a machine that receives, stores and publishes, and its controllers."""

from lavant.control.tuning.config import PublisherConfig, TuningConfig
from lavant.control.tuning.controllers import CONTROLLERS
from lavant.control.tuning.interface import Controller, Figures, Settings
from lavant.control.tuning.latencies import Latencies
from lavant.control.tuning.publisher import PublisherMachine
from lavant.control.tuning.statistics import PublisherStatistics

__all__ = [
    "CONTROLLERS",
    "Controller",
    "Figures",
    "Latencies",
    "PublisherConfig",
    "PublisherMachine",
    "PublisherStatistics",
    "Settings",
    "TuningConfig",
]

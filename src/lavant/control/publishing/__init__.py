"""The publisher and the tuning of its batches: a state machine that receives, stores and publishes, and its
controllers.
"""

from lavant.control.publishing.config import PublisherConfig, TuningConfig
from lavant.control.publishing.controllers.interface import BatchSettings, Controller, Figures
from lavant.control.publishing.controllers.registry import CONTROLLERS
from lavant.control.publishing.machine import PublisherMachine
from lavant.control.publishing.statistics import Latencies, PublisherStatistics

__all__ = [
    "CONTROLLERS",
    "BatchSettings",
    "Controller",
    "Figures",
    "Latencies",
    "PublisherConfig",
    "PublisherMachine",
    "PublisherStatistics",
    "TuningConfig",
]

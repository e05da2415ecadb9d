"""The publisher: stores publications before it sends them, in batches tuned to load and congestion."""

from lavant.client.publisher.publisher import Publisher
from lavant.client.publisher.transport import Transport
from lavant.client.values.publisher import PublisherConfig, PublisherStatistics, TuningConfig

__all__ = ["Publisher", "PublisherConfig", "PublisherStatistics", "Transport", "TuningConfig"]

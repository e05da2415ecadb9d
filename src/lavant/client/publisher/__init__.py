"""The publisher of an application: durable before it is published, in batches that follow load and congestion."""

from lavant.client.publisher.publisher import Publisher
from lavant.client.publisher.transport import Transport
from lavant.control.publishing import PublisherConfig, PublisherStatistics, TuningConfig

__all__ = ["Publisher", "PublisherConfig", "PublisherStatistics", "Transport", "TuningConfig"]

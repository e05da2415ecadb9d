"""Spark data sources: Lavant's logs, notifications and subscriptions as tables, and topics of Kafka.

Logs, notifications and subscriptions are data sources in Python: `register_sources(spark)` makes their names known to a
session, a Spark Connect session too. Kafka comes through Spark's own connector, a Java library.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from lavant.pipeline.sources.log import LogSource
from lavant.pipeline.sources.notifications import NotificationSource
from lavant.pipeline.sources.subscriptions import SubscriptionSource

SOURCES = (LogSource, NotificationSource, SubscriptionSource)


def register_sources(spark: SparkSession) -> None:
    """Make `lavant_log`, `lavant_notifications` and `lavant_subscriptions` known to a session."""
    for source in SOURCES:
        spark.dataSource.register(source)

"""Kafka in and out: publications from a topic, matched, and their notifications into another topic.

Spark's own Kafka source and sink carry the records; a task matches those of its partitions in their order. Spark's
checkpoint is the record of how far the stream is, so each notification is written at least once.
"""

from lavant.pipeline.sources.kafka.stream import match_topic, notifications_of
from lavant.pipeline.sources.kafka.topics import KafkaTopic

__all__ = ["KafkaTopic", "match_topic", "notifications_of"]

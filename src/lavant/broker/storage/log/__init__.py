"""The publication log: all accepted publications, in order, readable from any offset."""

from lavant.broker.storage.log.reader import LogReader
from lavant.broker.storage.log.writer import LogWriter

__all__ = ["LogReader", "LogWriter"]

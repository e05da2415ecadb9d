"""The publication log: everything that was accepted, in order, to be read again from any offset."""

from lavant.broker.storage.log.reader import LogReader
from lavant.broker.storage.log.writer import LogWriter

__all__ = ["LogReader", "LogWriter"]

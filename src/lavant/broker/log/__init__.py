"""The publication log: everything that was accepted, in order, to be read again from any offset."""

from lavant.broker.log.reader import LogReader
from lavant.broker.log.writer import LogWriter

__all__ = ["LogReader", "LogWriter"]

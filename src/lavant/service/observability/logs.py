"""The server's log: one line per event on standard error, as text or JSON.

    2026-11-17T15:28:03.120Z INFO 192.0.2.7:51310 refused a client without a known key (http); 1 since the last line
    {"time":"2026-11-17T15:28:03.120Z","level":"info","logger":"lavant…","peer":"192.0.2.7:51310","message":"…"}

The peer is the client whose request is being answered, if there is one. The level applies to Lavant; libraries log
warnings only, because some of them write headers, and so keys, at lower levels.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from lavant.service.auth.audit.log import ORIGIN, Origin

_logger = logging.getLogger(__name__)


def set_up_logging(level: str, format: str) -> None:
    """For the process of a server, with a level of `logging` and a format of `FORMATTERS`; replaces other handlers."""
    formatter = FORMATTERS[format]()
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("lavant").setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """One line per event; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        peer = _peer(record)
        line = f"{_time(record)} {record.levelname} {f'{peer} ' if peer else ''}{_one_line(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One object per line, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        peer = _peer(record)
        if peer:
            line["peer"] = peer
        line["message"] = record.getMessage()
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


FORMATTERS: dict[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _peer(record: logging.LogRecord) -> str:
    """Given as `extra={"peer": …}`, or that of the current request."""
    given: str | None = getattr(record, "peer", None)
    return ORIGIN.get().peer if given is None else given


def _one_line(text: str) -> str:
    """Names come from clients: control characters must not forge another line.

    >>> _one_line("queue a\\n2026-01-01 forged")
    'queue a\\\\n2026-01-01 forged'
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class RepeatedFault:
    """Limits the lines about a fault that repeats: the first at once, then at most one per interval, with a count."""

    INTERVAL_S = 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_s = float("-inf")
        self._untold = 0

    def add(self) -> int | None:
        """Call it for each fault: the number of faults since the last line if one is due now, otherwise None.

        >>> now_s = iter([0.0, 1.0, 61.0])
        >>> fault = RepeatedFault(clock=lambda: next(now_s))
        >>> fault.add(), fault.add(), fault.add()
        (1, None, 2)
        """
        self._untold += 1
        now_s = self._clock()
        if now_s < self._next_s:
            return None
        self._next_s = now_s + self.INTERVAL_S
        untold, self._untold = self._untold, 0
        return untold

    def over(self) -> None:
        """The fault is over: the next one is told at once."""
        self._next_s, self._untold = float("-inf"), 0


_unknown_keys, _malformed_requests = RepeatedFault(), RepeatedFault()


def tell_of_unknown_key(origin: Origin) -> None:
    """Log that a client was refused because of its key or signature, rate-limited over all clients of the process."""
    refused = _unknown_keys.add()
    if refused is not None:
        text = "refused a client without a known key (%s); %d since the last line"
        _logger.info(text, origin.protocol, refused, extra={"peer": origin.peer})


def tell_of_malformed_request(peer: str) -> None:
    """Log that a client sent what is no HTTP, such as a port scanner; rate-limited over all clients of the process."""
    refused = _malformed_requests.add()
    if refused is not None:
        _logger.info("refused a request that is not HTTP; %d since the last line", refused, extra={"peer": peer})

"""The file of the audit log: a thread appends whole lines. If it fails, the server continues and logs the fault.

    append ──► bounded buffer ──► thread ──► file
                 └── full: lost    └── disk full, …: lost

Lost lines are counted; the next line that can be written says how many.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from lavant.core.errors import InvalidValue

WAITING_BYTES_MAX = 8 << 20
_logger = logging.getLogger(__name__)


class AuditFile:
    """`gap` formats the line about lost lines."""

    def __init__(self, path: Path, gap: Callable[[int], bytes], *, waiting_bytes_max: int = WAITING_BYTES_MAX) -> None:
        self.written = 0
        self.lost = 0
        """Since the server started, like `written`."""
        self.fault: str | None = None
        """Why nothing can be written; None if it can."""
        self._path = path
        self._gap = gap
        self._waiting_bytes_max = waiting_bytes_max
        self._reported_lost = 0
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self._is_reopening = self._is_closing = False
        self._changed = threading.Condition()
        try:
            self._descriptor = _open(path)
        except OSError as error:
            raise InvalidValue(f"the audit log {path} cannot be written: {error.strerror}") from None
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def append(self, line: bytes) -> None:
        with self._changed:
            if self._waiting_bytes + len(line) > self._waiting_bytes_max:
                self.lost += 1
                return
            self._lines.append(line)
            self._waiting_bytes += len(line)
            self._changed.notify()

    def reopen(self) -> None:
        """Open the path again, after the file was renamed (log rotation)."""
        with self._changed:
            self._is_reopening = True
            self._changed.notify()

    def close(self) -> None:
        """Write the buffered lines if possible, and stop."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        is_closing = False
        while not is_closing:
            with self._changed:
                while not (self._lines or self._is_reopening or self._is_closing):
                    self._changed.wait()
                lines, self._lines, self._waiting_bytes = self._lines, [], 0
                is_reopening, self._is_reopening = self._is_reopening, False
                is_closing = self._is_closing
            # Lines from before the rename may be in either file.
            if lines:
                self._write(lines)
            if is_reopening:
                self._reopen()
        os.close(self._descriptor)

    def _write(self, lines: list[bytes]) -> None:
        lost = self.lost - self._reported_lost
        whole = [self._gap(lost), *lines] if lost else lines
        try:
            _append(self._descriptor, b"".join(whole))
        except OSError as error:
            with self._changed:
                self.lost += len(lines)
            self._set_fault(f"the audit log {self._path} cannot be written: {error.strerror}")
        else:
            self._reported_lost += lost
            self.written += len(lines)
            self._set_fault(None)

    def _reopen(self) -> None:
        try:
            descriptor = _open(self._path)
        except OSError as error:
            _logger.warning(
                "the audit log %s cannot be opened again: %s; the old file stays in use",
                self._path,
                error.strerror,
            )
            return
        os.close(self._descriptor)
        self._descriptor = descriptor

    def _set_fault(self, fault: str | None) -> None:
        """Log the start and the end of a fault."""
        before, self.fault = self.fault, fault
        if fault is not None and before is None:
            _logger.error("%s; the server continues without it", fault)
        elif fault is None and before is not None:
            _logger.warning("the audit log %s can be written again", self._path)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _append(descriptor: int, data: bytes) -> None:
    """Append all of it or nothing: half a line would corrupt the next."""
    size_bytes = os.fstat(descriptor).st_size
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        if os.fstat(descriptor).st_size != size_bytes:
            os.ftruncate(descriptor, size_bytes)
        raise

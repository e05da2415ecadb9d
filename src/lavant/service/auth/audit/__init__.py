"""The audit log: one line of JSON for each command that changes something or is denied.

    the door, all protocols ──► AuditLog: what is to be told, and how ──► AuditFile: a thread that writes

`records` says what a line says of a request, `log` which requests have one, `file` how they get to the disk.
"""

from lavant.service.auth.audit.log import AuditLog
from lavant.service.auth.audit.records import ORIGIN, Origin

__all__ = ["ORIGIN", "AuditLog", "Origin"]

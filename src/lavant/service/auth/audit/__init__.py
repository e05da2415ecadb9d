"""The audit log: one line of JSON for each command that changes something or is denied.

authorisation of all protocols ──► AuditLog: selects and formats lines ──► AuditFile: a thread that writes
"""

from lavant.service.auth.audit.log import ORIGIN, AuditLog, Origin

__all__ = ["ORIGIN", "AuditLog", "Origin"]

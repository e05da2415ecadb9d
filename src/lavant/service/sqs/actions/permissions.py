"""Actions on permissions between accounts, of which a server has only one."""

from __future__ import annotations

from lavant.service.sqs import requests
from lavant.service.sqs.desk import Call, Desk
from lavant.service.sqs.faults import SqsError


async def unsupported(desk: Desk, call: Call, request: requests.Permission) -> None:
    raise SqsError(
        "UnsupportedOperation",
        "This server has no permissions for single queues: whoever has one of its access keys may do everything. "
        "Run a second server for queues that others must not reach.",
    )

"""Actions on permissions between accounts, of which a server has only one."""

from __future__ import annotations

from lavant.service.sqs import requests
from lavant.service.sqs.desk import Call, Desk
from lavant.service.sqs.faults import SqsError


async def unsupported(desk: Desk, call: Call, request: requests.Permission) -> None:
    raise SqsError(
        "UnsupportedOperation",
        "This server has no permissions for single queues: what an access key may do is said in the server's "
        "credentials file, by scopes and a namespace.",
    )

"""The context of an action: access to the broker, names and handles, and the current call."""

from __future__ import annotations

import asyncio

from lavant.broker.protocol.commands import A_co, Answer, Request, RequestFor
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.registry import checked
from lavant.service.auth.audit.log import AuditLog
from lavant.service.auth.authorization import Execute, execute_as
from lavant.service.auth.keys import Principal
from lavant.service.aws.sqs.errors import refusal
from lavant.service.aws.sqs.handles import Handles
from lavant.service.aws.sqs.settings import SqsSettings
from lavant.service.net.connections import RequestConnection


class SqsContext:
    """The context of one principal: its requests and handles are valid only in its namespace."""

    __slots__ = ("_arn_prefix", "_audit", "_execute", "_principal", "changing", "handles", "settings")

    def __init__(
        self,
        execute: Execute,
        principal: Principal,
        settings: SqsSettings,
        changing: asyncio.Lock,
        audit: AuditLog | None = None,
    ) -> None:
        self.settings = settings
        self.handles = Handles(settings.salt, principal.namespace)
        self.changing = changing
        """Held while the attributes or tags of a queue are read and rewritten, so that no change is lost."""
        self._execute = execute
        self._audit = audit
        self._principal = principal
        self._arn_prefix = f"arn:aws:sqs:{settings.region}:{settings.account}:"

    async def execute(self, request: Request, connection: RequestConnection | None = None) -> Answer:
        """Executes a request. Raises `ClientGone` if the connection of a receive is lost."""
        return await execute_as(self._execute, self._principal, request, connection, audit=self._audit)

    async def ask(self, request: RequestFor[A_co], connection: RequestConnection | None = None) -> A_co:
        """Execute a request; raises a refusal as an error of SQS."""
        answer = checked(request, await self.execute(request, connection))
        if isinstance(answer, Refused):
            raise refusal(answer)
        return answer

    def arn(self, queue: str) -> str:
        return self._arn_prefix + queue


class SqsCall:
    """One request: the address that the client used, and its connection."""

    __slots__ = ("_url_prefix", "connection")

    def __init__(self, url_prefix: str, connection: RequestConnection) -> None:
        self._url_prefix = url_prefix
        self.connection = connection

    def queue_url(self, queue: str) -> str:
        return self._url_prefix + queue

"""Readiness of a server: when clients are served.

    starting ──begin──► serving ──stop──► stopping

While it starts, the port answers `/healthz` and `/readyz`, and refuses other requests with `NotReady`.
"""

from __future__ import annotations

from collections.abc import Callable

from lavant.core.errors import NotReady


class Readiness:
    """`fault` returns what is wrong with a started server, or None."""

    def __init__(self, fault: Callable[[], str | None]) -> None:
        self._fault = fault
        self._doing: str | None = "reading subscriptions"
        self._is_stopping = False

    @property
    def is_serving(self) -> bool:
        """Whether clients are served; connected ones still are while it stops."""
        return self._doing is None

    def reason(self) -> str | None:
        """Why it is not ready; None if it is."""
        if self._is_stopping:
            return "the server is stopping"
        return self._fault() if self._doing is None else f"the server is starting: {self._doing}"

    def check(self) -> None:
        """Raise unless clients are served."""
        if self._doing is not None:
            raise NotReady(f"the server is starting: {self._doing}; try again in a moment")

    def starts_with(self, doing: str) -> None:
        self._doing = doing

    def begin(self) -> None:
        self._doing = None

    def stop(self) -> None:
        self._is_stopping = True

"""A connection that notes what those who answer do with it."""

from __future__ import annotations

from collections.abc import Callable

from lavant.service.auth.tenants import Tenant


class FakeConnection:
    is_authenticated = False
    is_lost = False
    peer = "192.0.2.7:4711"

    def __init__(self) -> None:
        self._watchers: dict[Callable[[], None], None] = {}

    def watch(self, callback: Callable[[], None]) -> None:
        if self.is_lost:
            callback()
        else:
            self._watchers[callback] = None

    def unwatch(self, callback: Callable[[], None]) -> None:
        self._watchers.pop(callback, None)

    def lose(self) -> None:
        self.is_lost = True
        watchers, self._watchers = self._watchers, {}
        for callback in watchers:
            callback()

    def handed_over(self) -> None:
        """The answer has left."""
        self._watchers.clear()

    def authenticated(self, tenant: Tenant) -> None:
        self.is_authenticated = True

    def unsent_bytes(self) -> int:
        return 0

    def abort(self) -> None:
        assert self.is_lost, "the client reads"

"""A connection that notes what those who answer do with it."""

from __future__ import annotations

from lavant.service.tenants import Tenant


class FakeConnection:
    is_authenticated = False

    def authenticated(self, tenant: Tenant) -> None:
        self.is_authenticated = True

    def unsent_bytes(self) -> int:
        return 0

    def abort(self) -> None:
        raise AssertionError("the client reads")

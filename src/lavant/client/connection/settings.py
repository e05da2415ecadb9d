"""Settings of a connection: address, API key, timeout, retries and TLS."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple, Self

from lavant.client.connection.retries import Retries
from lavant.core.addresses import Address
from lavant.core.errors import InvalidValue, ServerUnreachable


class ConnectionSettings(NamedTuple):
    """All connections of a client share these."""

    address: Address
    token: bytes
    timeout_s: float
    retries: Retries
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, url: str, *, key: str, ca_file: Path | str | None, timeout_s: float, retries: Retries) -> Self:
        """
        >>> ConnectionSettings.of("lavant://h", key="", ca_file=None, timeout_s=0, retries=Retries())
        Traceback (most recent call last):
        lavant.core.errors.InvalidValue: a client's timeout_s must be positive, got 0
        """
        if not timeout_s > 0:
            raise InvalidValue(f"a client's timeout_s must be positive, got {timeout_s}")
        address = Address.parse(url)
        return cls(address, key.encode(), timeout_s, retries, _context(address, ca_file))

    def nobody_answers(self, error: OSError) -> ServerUnreachable:
        """The error for a failed connection, with its remedy."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return ServerUnreachable(
                f"the server at {self.address} cannot be trusted: {error.verify_message}; "
                "give the certificate of its authority as ca_file"
            )
        if isinstance(error, ssl.SSLError):
            return ServerUnreachable(f"the server at {self.address} does not speak TLS: {error.reason or error}")
        return ServerUnreachable(
            f"no server answers at {self.address}: {error}; start one with `lavant serve --port {self.address.port}`"
        )


def _context(address: Address, ca_file: Path | str | None) -> ssl.SSLContext | None:
    if not address.is_secure:
        if ca_file is not None:
            raise InvalidValue(f"a ca_file is for lavants:// (TLS), but the address is {address}")
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InvalidValue(f"the ca_file {ca_file} cannot be read: {error}; it holds certificates in PEM") from None

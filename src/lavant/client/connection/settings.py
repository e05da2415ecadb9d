"""Settings of a connection: address, API key, timeout, retries and TLS."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from lavant.client.bodies import utf8
from lavant.client.connection.redirects import Redirects
from lavant.client.connection.retries import Retries
from lavant.core.addresses import QUEUES_URL, Address, is_loopback
from lavant.core.errors import InvalidValue, ServerUnreachable
from lavant.core.seconds import check_seconds

TIMEOUT_S_MIN = 0.001
CA_FILE_VARIABLE = "LAVANT_CA_FILE"


class ConnectionSettings(NamedTuple):
    """All connections of a client share these."""

    address: Address
    token: bytes
    timeout_s: float
    retries: Retries
    tls: ssl.SSLContext | None
    redirects: Redirects
    """Where subscriptions and queues are that have moved."""

    @classmethod
    def of(cls, url: str, *, key: str, ca_file: Path | str | None, timeout_s: float, retries: Retries) -> Self:
        """
        >>> ConnectionSettings.of("lavant://h", key="", ca_file=None, timeout_s=0, retries=Retries())
        Traceback (most recent call last):
        lavant.core.errors.InvalidValue: timeout_s must not be below 0.001, nor above 30 years, got 0
        """
        check_seconds("timeout_s", timeout_s, TIMEOUT_S_MIN)
        if not isinstance(retries, Retries):
            raise InvalidValue(f"retries must be a `Retries`, such as Retries(within_s=60), got {retries!r:.40}")
        if not isinstance(ca_file, Path | str | None):
            raise InvalidValue(f"the ca_file must be the path of a file, got {ca_file!r:.40}")
        address = Address.parse(url)
        if not isinstance(key, str):
            raise InvalidValue(f"the API key must be a string, got {type(key).__name__}; see `encryption` for a Key")
        check_key(key)
        token = utf8(key, "the API key")
        tls = tls_context(str(address), ca_file, is_secure=address.is_secure)
        return cls(address, token, timeout_s, retries, tls, Redirects())

    def at(self, address: Address) -> Self:
        """For another broker of the same federation."""
        if self.address.is_secure and not address.is_secure:
            raise ServerUnreachable(f"a subscription has moved to {address}, which has no TLS, unlike {self.address}")
        tls = None
        if address.is_secure:
            tls = tls_context(str(address), None, is_secure=True) if self.tls is None else self.tls
        return self._replace(address=address, tls=tls)

    @classmethod
    def from_environment(
        cls, url: str, *, key: str, ca_file: Path | str | None, timeout_s: float, retries: Retries
    ) -> Self:
        """What is not given is read from `LAVANT_URL`, `LAVANT_KEY` and `LAVANT_CA_FILE`."""
        given = os.environ.get("LAVANT_URL", "") if url in ("", None) else url
        address = Address.parse(QUEUES_URL if given == "" else given)
        if ca_file is None and os.environ.get(CA_FILE_VARIABLE):
            ca_file = os.environ[CA_FILE_VARIABLE]
        secret = os.environ.get("LAVANT_KEY", "") if key in ("", None) else key
        return cls.of(str(address), key=secret, ca_file=ca_file, timeout_s=timeout_s, retries=retries)

    def nobody_answers(self, error: OSError) -> ServerUnreachable:
        return nobody_answers(str(self.address), self.address.port, error)


def check_key(key: str) -> None:
    """Raise if it holds what no key has, such as the end of a line of the file that it comes from; never show it."""
    if not key.isprintable() or key != key.strip():
        raise InvalidValue(
            "the API key has blanks around it, or holds a line break or another control character; "
            "give it as `lavant keys new` printed it"
        )


def nobody_answers(address: str, port: int, error: BaseException | str) -> ServerUnreachable:
    """The error for a failed connection, with its remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServerUnreachable(
            f"the server at {address} cannot be trusted: {error.verify_message}; give the certificate of its authority "
            f"as ca_file (--ca-file, or {CA_FILE_VARIABLE})"
        )
    if isinstance(error, ssl.SSLError):
        return ServerUnreachable(
            f"the server at {address} does not speak TLS: {error.reason or error}; use lavant:// if it has none"
        )
    remedy = f"start one with `lavant serve --data DIR --port {port}`"
    if not is_loopback(urlsplit(address).hostname or ""):
        remedy = "check the address, and that a server listens there for other machines (`lavant serve --host`)"
    return ServerUnreachable(f"no server answers at {address}: {error}; {remedy}")


def tls_context(address: str, ca_file: Path | str | None, *, is_secure: bool) -> ssl.SSLContext | None:
    """None without TLS. Then a `ca_file` is a mistake, unless the environment has it, for all servers."""
    if not is_secure:
        if ca_file is not None and str(ca_file) != os.environ.get(CA_FILE_VARIABLE):
            raise InvalidValue(f"a ca_file is for lavants:// (TLS), but the address is {address}")
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InvalidValue(f"the ca_file {ca_file} cannot be read: {error}; it holds certificates in PEM") from None

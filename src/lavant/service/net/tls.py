"""TLS for the server's port."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from lavant.core.errors import InvalidValue

HANDSHAKE_S_MAX = 10.0


class TlsFiles(msgspec.Struct, frozen=True):
    """In PEM; the certificate is followed by its chain."""

    certificate: Path
    key: Path


class Tls:
    """Certificate and key of a server; `read` reloads them for new connections."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.read()

    def read(self) -> None:
        """Load the files. If they are invalid it raises and the old ones stay in use."""
        check = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for context in (check, self.context):
            try:
                # Never prompt for a password: a server starts unattended.
                context.load_cert_chain(self._files.certificate, self._files.key, password="")
            except ssl.SSLError as error:
                raise InvalidValue(
                    f"{self._files.certificate} and {self._files.key} are not a certificate and its key in PEM, "
                    f"without a password: {error.reason or error}"
                ) from None
            except OSError as error:
                raise InvalidValue(
                    f"cannot read the certificate {self._files.certificate} or its key {self._files.key}: "
                    f"{error.strerror or error}"
                ) from None

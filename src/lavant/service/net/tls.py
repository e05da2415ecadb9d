"""TLS for the port: everything that is spoken there is spoken through it."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from lavant.core.errors import InvalidValue

HANDSHAKE_S_MAX = 10.0


class TlsFiles(msgspec.Struct, frozen=True):
    """In PEM; the certificate with those of its issuers behind it."""

    certificate: Path
    key: Path


class Tls:
    """Certificate and key of a server, read again when it is told to: those who connect later see the new one."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.read()

    def read(self) -> None:
        """Take what the files hold now. If they cannot be used that is raised, and all stays as it was."""
        check = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for context in (check, self.context):
            try:
                # No password is asked for: a server starts without anybody at the keyboard.
                context.load_cert_chain(self._files.certificate, self._files.key, password="")
            except ssl.SSLError as error:
                raise InvalidValue(
                    f"{self._files.certificate} and {self._files.key} are no certificate and its key in PEM, without "
                    f"a password: {error.reason or error}"
                ) from None
            except OSError as error:
                raise InvalidValue(
                    f"cannot read the certificate {self._files.certificate} or its key {self._files.key}: "
                    f"{error.strerror or error}"
                ) from None

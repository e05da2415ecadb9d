"""Files of certificates that are of no use are told before a server starts."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.integration.certificates import write_certificate
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.core.errors import InvalidValue
from lavant.service.net.tls import Tls, TlsFiles


@pytest.mark.parametrize(
    "given",
    [("certificate.pem", "certificate.pem"), ("key.pem", "key.pem"), ("none", "key.pem"), ("other.pem", "key.pem")],
)
def test_a_certificate_and_its_own_key_are_wanted(tmp_path: Path, given: tuple[str, str]) -> None:
    write_certificate(tmp_path)[0].rename(tmp_path / "other.pem")
    write_certificate(tmp_path)
    with pytest.raises(InvalidValue, match="certificate"):
        Tls(TlsFiles(tmp_path / given[0], tmp_path / given[1]))


def shakes_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Raises if the client does not take the server's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                pass


def test_what_was_read_stays_when_the_files_are_of_no_use_any_more(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    tls, trusting = Tls(TlsFiles(certificate, key)), ssl.create_default_context(cafile=certificate)
    key_text = key.read_bytes()
    write_certificate(tmp_path)
    key.write_bytes(key_text)  # the new certificate, and the old key
    with pytest.raises(InvalidValue):
        tls.read()
    shakes_hands(tls.context, trusting)
    write_certificate(tmp_path)
    tls.read()
    shakes_hands(tls.context, ssl.create_default_context(cafile=certificate))
    with pytest.raises(ssl.SSLCertVerificationError):
        shakes_hands(tls.context, trusting)


def test_one_without_the_other_is_a_mistake(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    for options in (["--tls-certificate", str(certificate)], ["--tls-key", str(key)]):
        result = CliRunner().invoke(commands, ["serve", "--memory", *options])
        assert isinstance(result.exception, InvalidValue)
        assert "together" in str(result.exception)

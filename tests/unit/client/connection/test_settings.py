"""Settings of a connection: certificates, and errors that say what to do."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from lavant.client.connection.settings import check_key, nobody_answers, tls_context
from lavant.core.errors import InvalidValue


def test_authorities_of_the_environment_are_for_servers_with_tls_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAVANT_CA_FILE", "missing.pem")
    assert tls_context("lavant://h:1", Path("missing.pem"), is_secure=False) is None
    with pytest.raises(InvalidValue, match="a ca_file is for lavants://"):
        tls_context("lavant://h:1", "another.pem", is_secure=False)
    with pytest.raises(InvalidValue, match=r"missing\.pem cannot be read"):
        tls_context("lavants://h:1", "missing.pem", is_secure=True)


def test_a_failed_connection_says_what_to_do() -> None:
    refused = ConnectionRefusedError(111, "Connection refused")
    for here in ("lavant://127.0.0.1:99", "http://localhost:99"):
        assert "start one with `lavant serve --data DIR --port 99`" in str(nobody_answers(here, 99, refused))
    assert "; check the address, and that a server listens there" in str(nobody_answers("lavant://h:99", 99, refused))
    plain = ssl.SSLError(1, "WRONG_VERSION_NUMBER")
    plain.reason = "WRONG_VERSION_NUMBER"
    distrusted = ssl.SSLCertVerificationError("self-signed")
    distrusted.verify_message = "self-signed certificate"
    assert "--ca-file, or LAVANT_CA_FILE" in str(nobody_answers("https://h:99", 99, distrusted))
    assert "use lavant:// if" in str(nobody_answers("https://h:99", 99, plain))


@pytest.mark.parametrize("key", ["secret\n", " secret", "se\ncret", "secret\x00"])
def test_a_key_with_more_than_a_key_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(InvalidValue, match="the API key has blanks around it, or holds a line break") as refused:
        check_key(key)
    assert "secret" not in str(refused.value)

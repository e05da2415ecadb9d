"""Files of certificates that are of no use are told before a server starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.certificates import write_certificate
from typer.testing import CliRunner

from lavant.console.cli import commands
from lavant.core.errors import InvalidValue
from lavant.service.tls import Tls, TlsFiles


@pytest.mark.parametrize(
    "given",
    [("certificate.pem", "certificate.pem"), ("key.pem", "key.pem"), ("none", "key.pem"), ("other.pem", "key.pem")],
)
def test_a_certificate_and_its_own_key_are_wanted(tmp_path: Path, given: tuple[str, str]) -> None:
    write_certificate(tmp_path)[0].rename(tmp_path / "other.pem")
    write_certificate(tmp_path)
    with pytest.raises(InvalidValue, match="certificate"):
        Tls(TlsFiles(tmp_path / given[0], tmp_path / given[1]))


def test_what_was_read_stays_when_the_files_are_of_no_use_any_more(tmp_path: Path) -> None:
    tls = Tls(TlsFiles(*write_certificate(tmp_path)))
    (tmp_path / "key.pem").write_text("nonsense")
    with pytest.raises(InvalidValue):
        tls.read()
    write_certificate(tmp_path)
    tls.read()


def test_one_without_the_other_is_a_mistake(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    for options in (["--tls-certificate", str(certificate)], ["--tls-key", str(key)]):
        result = CliRunner().invoke(commands, ["serve", "--memory", *options])
        assert isinstance(result.exception, InvalidValue)
        assert "together" in str(result.exception)

"""What a server may be told, before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lavant.core.errors import InvalidValue
from lavant.service.settings import ServeSettings


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_this_machine_nobody_need_prove_who_they_are(host: str) -> None:
    ServeSettings(port=0, host=host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "queues.example", ""])
@pytest.mark.parametrize(("keys_file", "credentials"), [(None, None), (Path("keys"), None), (None, {"key": "secret"})])
def test_where_others_reach_it_all_protocols_must_be_closed(
    host: str, keys_file: Path | None, credentials: dict[str, str] | None
) -> None:
    with pytest.raises(InvalidValue, match="--keys-file and --credentials-file"):
        ServeSettings(port=0, host=host, keys_file=keys_file, credentials=credentials)


def test_with_both_it_may_listen_anywhere() -> None:
    ServeSettings(port=0, host="0.0.0.0", keys_file=Path("keys"), credentials={"key": "secret"})

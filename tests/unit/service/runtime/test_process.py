"""What a server may be told, before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lavant.core.errors import InvalidValue
from lavant.service.runtime.settings import ServeSettings


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_this_machine_nobody_need_prove_who_they_are(host: str) -> None:
    ServeSettings(port=0, host=host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "queues.example", ""])
def test_where_others_reach_it_somebody_must_prove_who_they_are(host: str) -> None:
    with pytest.raises(InvalidValue, match="--keys-file, --credentials-file or both"):
        ServeSettings(port=0, host=host)


@pytest.mark.parametrize("files", [("keys_file",), ("credentials_file",), ("keys_file", "credentials_file")])
def test_with_either_file_it_may_listen_anywhere_because_the_rest_is_closed(files: tuple[str, ...]) -> None:
    settings = ServeSettings(port=0, host="0.0.0.0", **{name: Path(name) for name in files})  # type: ignore[arg-type]
    assert not settings.is_open

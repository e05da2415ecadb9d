"""Descriptors: what is kept for the journal and others, and what is left for connections."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from lavant.core.errors import InvalidValue
from lavant.service.net.descriptors import CONNECTIONS_MIN, connections_allowed, raise_limit, reserved
from lavant.service.runtime.limits import LIMITS


@contextmanager
def soft_limit(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_get_what_is_left_after_the_reserve() -> None:
    is_open = len(os.listdir("/dev/fd")) - 1  # without that of the listing itself
    with soft_limit(1024):
        allowed = connections_allowed(LIMITS)
        assert allowed + reserved(LIMITS) + is_open in (1023, 1024)
        assert connections_allowed(LIMITS, logs_max=100) == allowed - 100
        assert connections_allowed(replace(LIMITS, files_reserved=LIMITS.files_reserved + 50)) == allowed - 50
        assert connections_allowed(replace(LIMITS, connections_max=7)) == 7


def test_a_server_with_too_few_of_them_says_how_many_it_needs() -> None:
    with soft_limit(200), pytest.raises(InvalidValue, match=r"ulimit -n.*at least ([0-9]+)") as raised:
        connections_allowed(LIMITS)
    wanted = int(str(raised.value).rpartition(" ")[2])
    with soft_limit(wanted):
        assert connections_allowed(LIMITS) == CONNECTIONS_MIN


def test_the_limit_is_raised_and_never_lowered() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with soft_limit(300):
        raise_limit()
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert raised > 300
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (raised, hard)

"""What tests do without where a component of others is missing."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def do_without(reason: str) -> NoReturn:
    """Skip the test, with the reason; continuous integration does not put up with that, and fails."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)

"""Ranges of versions of libraries whose internals Lavant uses, checked when such a library is first imported."""

from __future__ import annotations

import re
from typing import NamedTuple

from lavant.core.errors import MissingComponent


class VersionRange(NamedTuple):
    """The versions of one package that Lavant is known to work with; `too_new` is the first that is not.

    >>> str(VersionRange("uvicorn", (0, 54), (0, 55)))
    'uvicorn>=0.54,<0.55'
    """

    package: str
    oldest: tuple[int, int]
    too_new: tuple[int, int]

    def __str__(self) -> str:
        return self.package + ">={}.{},<{}.{}".format(*self.oldest, *self.too_new)

    def check(self, version: str) -> None:
        """Raise `MissingComponent` unless the installed version is in the range."""
        parsed = re.match(r"(\d+)\.(\d+)", version)
        if parsed is None or not self.oldest <= (int(parsed[1]), int(parsed[2])) < self.too_new:
            raise MissingComponent(
                f"Lavant needs {self}, because it uses internals of {self.package}, and {version} is installed; "
                f"run pip install '{self}'"
            )

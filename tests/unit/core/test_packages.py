"""Versions of packages whose internals are used."""

from __future__ import annotations

import importlib
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.scheduling import XDIST

from lavant.core.errors import MissingComponent
from lavant.core.packages import VersionRange
from lavant.pipeline.internals.versions import PYSPARK
from lavant.service.net import http_server

RANGE = VersionRange("thing", (0, 54), (1, 2))


@pytest.mark.parametrize("version", ["0.54.0", "0.54.1", "0.60", "1.0.0", "1.1.9", "1.1.0.dev2"])
def test_versions_in_the_range_pass(version: str) -> None:
    RANGE.check(version)


@pytest.mark.parametrize("version", ["0.53.9", "0.5.4", "1.2.0", "1.10.0", "2.0", "unknown", ""])
def test_other_versions_are_refused_with_what_to_install(version: str) -> None:
    with pytest.raises(MissingComponent, match=rf"thing>=0.54,<1.2, .*, and {version} is installed; run pip install"):
        RANGE.check(version)


def test_the_server_does_not_start_with_another_uvicorn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn, "__version__", "0.55.0")
    with pytest.raises(MissingComponent, match=r"and 0.55.0 is installed; run pip install 'uvicorn>=0.54,<0.55'"):
        importlib.reload(http_server)


@pytest.mark.parametrize("versions", [http_server.UVICORN, PYSPARK, XDIST], ids=lambda versions: versions.package)
def test_the_project_requires_the_same_versions(versions: VersionRange) -> None:
    project: dict[str, Any] = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    assert str(versions) in [*chain(*extras), *project["dependency-groups"]["dev"]]

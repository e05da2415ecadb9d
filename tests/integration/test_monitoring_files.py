"""The dashboard, the alerts and the unit in deploy/: each metric they name is in a real scrape, and they parse."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.integration.components import do_without
from tests.integration.serving import LAVANT, Served
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.core.kernels import cache

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "lavant.rules.yml"
DASHBOARD = DEPLOY / "grafana" / "lavant.json"
UNIT = DEPLOY / "systemd" / "lavant.service"
_METRIC = re.compile(r"\b(?:lavant|process)_[a-z_]+\b")
_LABEL = re.compile(r"by \(([a-z_, ]+)\)|\{\{ ?(?:\$labels\.)?([a-z_]+) ?\}\}|([a-z_]+)=~?\"")
_ADDED_BY_SCRAPES = {"job", "instance"}

pytestmark = pytest.mark.external


def rules() -> list[dict[str, object]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def dashboard_queries() -> list[tuple[str, str]]:
    """Expressions with their legends."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [(target["expr"], target["legendFormat"]) for panel in panels for target in panel["targets"]]


def expressions() -> list[str]:
    filled = [
        expression.replace("$__rate_interval", "5m").replace("$instance", ".*") for expression, _ in dashboard_queries()
    ]
    return [*(str(rule["expr"]) for rule in rules()), *filled]


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server with a queue and some requests."""
    with Served(tmp_path_factory.mktemp("served") / "data") as server:
        lavant = [str(LAVANT), "queue", "create", "q", "--url", server.url]
        subprocess.run(lavant, check=True, capture_output=True)
        with server.http("/subscriptions") as response:
            response.read()
        with server.http("/metrics") as response:
            yield response.read().decode()


def test_every_metric_is_in_a_scrape(scrape: str) -> None:
    samples = {re.split(r"[{ ]", line, maxsplit=1)[0] for line in scrape.splitlines() if not line.startswith("#")}
    named = {name for expression in expressions() for name in _METRIC.findall(expression)}
    assert len(named) > 20
    assert named <= samples


def test_every_label_is_in_a_scrape(scrape: str) -> None:
    labels = set(re.findall(r'[{,]([a-z_]+)="', scrape)) | _ADDED_BY_SCRAPES
    texts = [*expressions(), *(legend for _, legend in dashboard_queries()), RULES.read_text()]
    found = [name for text in texts for match in _LABEL.findall(text) for part in match for name in part.split(", ")]
    assert {name for name in found if name} <= labels


def check_installed(program: str, tool: str) -> None:
    if shutil.which(program) is None:
        do_without(f"{program} is not installed; {tool} installs it")


def test_promtool_takes_every_expression(tmp_path: Path) -> None:
    check_installed("promtool", "tools/prometheus")
    records = [{"record": f"try:{number}", "expr": each} for number, each in enumerate(expressions())]
    tried = tmp_path / "tried.yml"
    tried.write_text(yaml.safe_dump({"groups": [{"name": "tried", "rules": records}]}))
    for arguments in (["rules", RULES], ["rules", tried], ["config", DEPLOY / "prometheus" / "prometheus.yml"]):
        checked = subprocess.run(
            ["promtool", "check", *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_panels_have_places_of_their_own_and_alerts_say_what_is_wrong() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in panels}) == len(panels)
    for rule in rules():
        assert isinstance(rule["annotations"], dict)
        assert rule["annotations"]["summary"]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text()
    assert "/opt/lavant/bin/lavant serve" in text
    check_installed("systemd-analyze", "tools/systemd")
    unit = tmp_path / "lavant.service"
    unit.write_text(text.replace("/opt/lavant/bin/lavant", str(LAVANT)))
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_server_would_start_as_the_unit_says(tmp_path: Path) -> None:
    """With its options, which `lavant config check` takes, and a cache of kernels in a directory that it may write."""
    said = dict(
        line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#")
    )
    [options] = re.findall(r"--config \S+/(\S+)$", said["ExecStart"])
    data, state = tomllib.loads((UNIT.parent / options).read_text())["data"], said["StateDirectory"]
    assert data == f"/var/lib/{state}"
    assert said["Environment"] == f"{cache.VARIABLE}=/var/cache/{said['CacheDirectory']}"
    file = tmp_path / options
    file.write_text((UNIT.parent / options).read_text().replace(data, str(tmp_path / "data")))
    assert CliRunner().invoke(commands, ["config", "check", str(file)]).stdout == f"{file}: 2 settings, all valid\n"

"""The tree stays tidy: what no linter checks, checked here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.help_pages import REFERENCE, block, documented, leaf_commands

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "lavant"
PURE_PACKAGES = ("core", "broker", "control", "models")
LINES_MAX = 500

MODULES = sorted(SOURCE.rglob("*.py"))
PURE_MODULES = [path for path in MODULES if path.relative_to(SOURCE).parts[0] in PURE_PACKAGES]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SCRIPTS = sorted(path for place in ("tools", ".ci") for path in (ROOT / place).iterdir() if path.is_file())
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FILES = [*MODULES, *TESTS, *SCRIPTS, *PAGES]

# Written so that they do not find themselves.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|Users|work)/\w")
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b")
RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")

# Import contracts see whole modules; these are the parts of allowed modules that read a clock or throw dice.
# `numpy.random.Generator` is the type of a random source that comes in as an argument.
IMPURE = re.compile(
    r"numpy\.random\.(?!Generator\b)"
    r"|time\."
    r"|datetime\.(?:datetime|date)\.(?:now|utcnow|today)\b"
    r"|os\.(?:urandom|getrandom|times)\b"
    r"|uuid\.uuid[14]\b"
)
MAY_THROW_DICE = "src/lavant/core/identities.py"
"""It says why."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def lines_matching(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    return [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if pattern.search(line)
    ]


def names_used(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every dotted name with its line, spelled from the module it comes from: `np.random.rand` is numpy.random.rand."""
    origin: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                origin[alias.asname or package] = alias.name if alias.asname else package
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                origin[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            head, _, tail = ast.unparse(node).partition(".")
            if head in origin:
                yield node.lineno, f"{origin[head]}.{tail}"


def impure_names(source: str) -> list[str]:
    return [f"{line}: {name}" for line, name in names_used(ast.parse(source)) if IMPURE.match(name)]


def test_no_struct_takes_its_tag_from_the_name_of_its_class() -> None:
    """A tag is part of a format: it must stay when the class is renamed."""
    assert lines_matching(re.compile(r"\btag=Tru[e]\b"), MODULES) == []


def test_every_package_and_module_says_what_it_is_for() -> None:
    assert [name_of(path) for path in MODULES if ast.get_docstring(ast.parse(text_of(path))) is None] == []


def test_every_directory_of_modules_is_a_package() -> None:
    directories = sorted({path.parent for path in MODULES})
    assert [name_of(directory) for directory in directories if not (directory / "__init__.py").is_file()] == []


def test_no_file_is_too_long_to_read() -> None:
    lengths = {name_of(path): len(text_of(path).splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}


def test_no_file_names_a_place_on_one_machine() -> None:
    assert lines_matching(MACHINE_PATH, FILES) == []


@pytest.mark.parametrize(
    ("package", "files", "importer"),
    [("uvicorn", MODULES, "src/lavant/service/net/http_server/"), ("xdist", TESTS, "tests/scheduling.py")],
)
def test_a_package_whose_internals_are_used_has_one_importer(package: str, files: list[Path], importer: str) -> None:
    lines = lines_matching(re.compile(rf"^\s*(?:from|import) {package}\b"), files)
    assert lines
    assert [line for line in lines if not line.startswith(importer)] == []


def test_no_file_holds_a_tab() -> None:
    assert lines_matching(re.compile(r"\t"), FILES) == []


def test_no_docstring_of_the_client_is_written_twice() -> None:
    """Operations that both clients offer are described once."""
    places: dict[str, list[str]] = {}
    for path in (SOURCE / "client").rglob("*.py"):
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
                places.setdefault(text, []).append(f"{name_of(path)}:{node.lineno}")
    assert [each for each in places.values() if len(each) > 1] == []


def test_nothing_is_left_for_later() -> None:
    assert lines_matching(UNFINISHED, FILES) == []


def test_pure_packages_read_no_clock_and_throw_no_dice() -> None:
    found = {name_of(path): impure_names(text_of(path)) for path in PURE_MODULES if name_of(path) != MAY_THROW_DICE}
    assert {name: names for name, names in found.items() if names} == {}


def test_unit_tests_mirror_the_source() -> None:
    unit = ROOT / "tests" / "unit"
    directories = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    assert [str(directory) for directory in sorted(directories) if not (SOURCE / directory).is_dir()] == []


def test_relative_links_lead_to_files() -> None:
    links = [(page, link) for page in PAGES for link in RELATIVE_LINK.findall(text_of(page))]
    assert [f"{name_of(page)}: {link}" for page, link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nnp.random.default_rng()",
        "import numpy.random\nnumpy.random.rand()",
        "from numpy import random as dice\ndice.rand()",
        "from numpy.random import default_rng",
        "import time\ntime.monotonic()",
        "from time import time",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import date\ndate.today()",
        "import os\nos.urandom(8)",
        "from uuid import uuid4",
    ],
)
def test_a_clock_or_dice_by_any_name_is_found(source: str) -> None:
    assert impure_names(source)


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\ndef f(source: np.random.Generator) -> float:\n    return source.random()",
        "from datetime import datetime\ndatetime.fromtimestamp(0)",
        "import os\nos.fsync(0)",
    ],
)
def test_what_comes_in_as_an_argument_is_pure(source: str) -> None:
    assert not impure_names(source)


def test_every_command_and_every_flag_is_in_the_reference() -> None:
    blocks = {words: text for page in REFERENCE.glob("*.md") for words, text in documented(text_of(page))}
    assert [words for words in leaf_commands() if words not in blocks] == []
    outdated = [words for words, text in blocks.items() if text != block(words)]
    assert outdated == [], "run `python -m tests.unit.cli.help_pages`"


def test_every_file_that_the_page_of_limits_names_exists() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", text_of(REFERENCE / "limits.md"))
    assert named
    assert [name for name in named if not (SOURCE / name).is_file()] == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert pages - listed == set(), "list them in mkdocs.yml, below nav"

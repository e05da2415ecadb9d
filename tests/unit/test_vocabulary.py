"""One word for one meaning: names, folders and pages keep to `docs/glossary.md`."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "lavant"
MODULES = sorted(SOURCE.rglob("*.py"))
MIRRORS = SOURCE / "client" / "values"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GLOSSARY = ROOT / "docs" / "glossary.md"
MODULES_MAX = 12
"""In one folder; a folder is read as a whole."""

RETIRED = {
    "hub": "machine, queues, jobs",
    "lane": "namespace log",
    "desk": "context",
    "courier": "sender",
    "crew": "worker pool",
    "pulse": "heartbeat",
    "stretch": "offset range",
    "intake": "prefetch",
    "waiting room": "long polls",
    "sniffing": "protocol detection",
    "compact protocol": "native protocol",
    "how-manieth": "attempt number",
    "evening": "rebalance",
    "wakes": "timers",
    "hidden messages": "in flight",
    "labour": "workload",
    "whoever": "the role: publisher, subscriber, consumer, worker, operator",
}
"""Words of an earlier vocabulary, and the words that replaced them."""

RETIRED_NAMES = (
    *("BrokerServer", "WaitingRoom", "FoundDeliveries", "SparkSide", "ResourceSide", "CompactProtocol", "CrewSettings"),
    *("MovePaces", "Lanes", "SparkLane", "RecentKeys", "HubLimits", "Poster", "Courier", "Seals", "Lately", "Panes"),
)


def words(text: str) -> list[tuple[int, str]]:
    """Lines of a page with a retired word, code blocks included: commands and outputs are read as well."""
    word = re.compile(r"(?<![\w-])(?:" + "|".join(rf"{each}s?" for each in RETIRED) + r")(?![\w-])", re.IGNORECASE)
    name = re.compile(r"\b(?:" + "|".join(RETIRED_NAMES) + r")\b")
    lines = enumerate(text.splitlines(), start=1)
    return [(number, hit.group(0)) for number, line in lines if (hit := word.search(line) or name.search(line))]


def test_public_class_names_are_unique() -> None:
    """Except those of the client's values, which mirror others: the same word for the same thing in another unit."""
    places = defaultdict(list)
    for path in MODULES:
        if path.parent == MIRRORS and path.stem != "mirror":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_a_folder_holds_no_more_modules_than_can_be_taken_in() -> None:
    sizes = Counter(str(path.parent.relative_to(SOURCE)) for path in MODULES if path.name != "__init__.py")
    assert {folder: size for folder, size in sizes.items() if size > MODULES_MAX} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_uses_a_retired_word(page: Path) -> None:
    found = words(page.read_text(encoding="utf-8"))
    assert [f"{page.name}:{number}: {word!r}" for number, word in found] == []


def test_a_retired_word_is_found() -> None:
    assert words("The lanes of the hub\nare fine\nsee `BrokerServer`") == [(1, "lanes"), (3, "BrokerServer")]


def test_the_glossary_gives_each_word_one_meaning() -> None:
    entries = re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    listed = [word.strip() for entry in entries for word in entry.split(",")]
    assert len(listed) > 50
    assert [word for word, count in Counter(listed).items() if count > 1] == []

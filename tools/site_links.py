"""A hook of MkDocs: links from pages to files of the repository work on the site, too.

Pages link to each other as files of the repository, so that they can be read there: `../src/lavant/core/errors.py`,
`../CHANGELOG.md`. The site has copies of those files below `repository/`, and the links lead there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES, COPIES = "docs", "repository"
_COPIED_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
_LINK = re.compile(r"(?<!`)(\[(?:[^\]\[]|\[[^\]]*\])*\])\((?![a-z]+:|#|/)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add copies of everything that pages link to."""
    texts = {f"{PAGES}/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    texts.update({name: (ROOT / name).read_text() for name in _COPIED_PAGES})
    linked = {target for page, text in texts.items() for target in _targets(page, text)}
    for target in sorted(linked | set(_COPIED_PAGES)):
        if not target.startswith(f"{PAGES}/") and (ROOT / target).is_file():
            files.append(File.generated(config, f"{COPIES}/{target}", content=(ROOT / target).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links lead to the site's own files; those to directories and to missing files stay text."""
    own = page.file.src_uri
    source = own.removeprefix(f"{COPIES}/") if own.startswith(f"{COPIES}/") else f"{PAGES}/{own}"

    def relinked(match: re.Match[str]) -> str:
        target = _resolved(source, match[2])
        if target == PAGES or not (ROOT / target).is_file():
            return match[1][1:-1]
        place = target.removeprefix(f"{PAGES}/") if target.startswith(f"{PAGES}/") else f"{COPIES}/{target}"
        return f"{match[1]}({posixpath.relpath(place, posixpath.dirname(own) or '.')}{match[3] or ''})"

    return _outside_code(markdown, lambda text: _LINK.sub(relinked, text))


def _targets(page: str, text: str) -> Iterator[str]:
    return (_resolved(page, match[2]) for match in _LINK.finditer(text))


def _resolved(page: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _outside_code(markdown: str, change: Any) -> str:
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else change(part) for part in parts)

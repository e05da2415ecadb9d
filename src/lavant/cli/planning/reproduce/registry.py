"""The papers that `lavant reproduce` knows. To add one, declare a `Paper` in its package and list it here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.simulation.figures import FigureEntry, Paper


def papers() -> dict[str, Paper]:
    """All papers by name."""
    from lavant.simulation.balancing.figures import BALANCING  # noqa: PLC0415
    from lavant.simulation.placement.figures import E_STREAMHUB  # noqa: PLC0415
    from lavant.simulation.publisher.figures import PUBLISHER  # noqa: PLC0415
    from lavant.simulation.queueing.figures import ALLOCATION  # noqa: PLC0415
    from lavant.simulation.reliable_queue.figures import RELIABLE_QUEUE  # noqa: PLC0415

    return {paper.name: paper for paper in (ALLOCATION, E_STREAMHUB, PUBLISHER, RELIABLE_QUEUE, BALANCING)}


def selected(paper: str | None, figure: str | None) -> list[tuple[Paper, FigureEntry]]:
    """The figures that were asked for; all without a paper, all of the paper without a figure."""
    known = papers()
    if paper is not None and paper not in known:
        raise InvalidValue(f"there is no paper {paper!r}; there are {', '.join(known)}")
    chosen = list(known.values()) if paper is None else [known[paper]]
    found = [(each, entry) for each in chosen for entry in each.figures if figure in (None, entry.name)]
    if not found:
        names = ", ".join(entry.name for entry in chosen[0].figures)
        raise InvalidValue(f"there is no figure {figure!r} of {paper}; there are {names}")
    return found

"""Drawn pages: nothing covers anything else, and no arc runs through a place or transition that is not its own."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lavant.core.errors import InvalidValue
from lavant.models.petri.drawing import Drawing, draw
from lavant.models.petri.language.colours import Int
from lavant.models.petri.net import Net
from lavant.models.petri.nets.reliable_queue import ReliableQueue, reliable_queue

PAGES = ("Layer_1", "Cloud_Queue", "Send_Proc", "Broker", "Recv_Proc", "Visibility_Timeout")
COVERED_MAX = 8.0
"""Square pixels that two texts may share: the corner of a letter's box, not a letter."""


def collisions(drawing: Drawing) -> list[tuple[str, str]]:
    pairs = combinations(drawing.boxes.items(), 2)
    return [(a, b) for (a, one), (b, two) in pairs if one.overlap(two) > COVERED_MAX and not _belong(a, b)]


def crossings(drawing: Drawing) -> list[tuple[str, str, str]]:
    """Arcs that run through a node that is not theirs."""
    return [
        (place, transition, name)
        for place, transition, points in drawing.arcs
        for name, box in drawing.boxes.items()
        if name.startswith(("place ", "transition "))
        and name not in (f"place {place}", f"transition {transition}")
        and any(box.holds(point) for point in points)
    ]


def _belong(node: str, tag: str) -> bool:
    """A tag sits on the edge of its place or transition."""
    return tag.startswith(("tag of", "page of")) and node.rpartition(" ")[2] == tag.rpartition(" ")[2]


@pytest.mark.parametrize("order", ["out-of-order", "in-order"])
@pytest.mark.parametrize("page", PAGES)
def test_no_text_covers_another_and_no_arc_runs_through_a_node(page: str, order: str) -> None:
    drawing = draw(reliable_queue(ReliableQueue(order=order)), page)
    assert collisions(drawing) == []
    assert crossings(drawing) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_well_formed_and_names_all_that_is_on_it(page: str) -> None:
    net = reliable_queue(ReliableQueue())
    root = ElementTree.fromstring(draw(net, page).svg)
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {*net.pages[page].places, *net.pages[page].transitions, *net.pages[page].substitutions} <= texts


def test_a_marking_is_drawn_beside_its_place() -> None:
    net = reliable_queue(ReliableQueue())
    svg = draw(net, "Broker", {"Thread": "4`thread"}).svg
    assert "4`thread" in svg
    assert 'class="count"' in svg


def test_a_net_without_positions_is_laid_out_in_columns() -> None:
    net = Net("plain")
    integer = net.colour(Int("INT"))
    net.variables(n=integer)
    page = net.page("Top")
    page.place("A", integer, [1])
    page.place("B", integer)
    page.transition("T", takes={"A": "n"}, puts={"B": "n + 1"})
    drawing = draw(net, "Top")
    assert collisions(drawing) == []
    lefts = [drawing.boxes[name].left for name in ("place A", "transition T", "place B")]
    assert lefts == sorted(lefts)


def test_arcs_bend_around_nodes_that_are_in_their_way() -> None:
    """A sender, a network and a receiver, whose columns lie in one row."""
    net = Net("protocol")
    integer = net.colour(Int("INT"))
    net.variables(n=integer)
    page = net.page("Top")
    for name in ("A", "B", "C", "D"):
        page.place(name, integer)
    page.transition("Network", takes={"A": "n", "C": "n"}, puts={"B": "n", "D": "n"})
    page.transition("Sender", takes={"D": "n"}, puts={"A": "n"})
    page.transition("Receiver", takes={"B": "n"}, puts={"C": "n"})
    assert crossings(draw(net, "Top")) == []


def test_a_long_marking_has_several_lines_and_an_end() -> None:
    net = Net("many")
    page = net.page("Top")
    page.place("A", net.colour(Int("INT")), range(100))
    drawing = draw(net, "Top", {"A": "1`[" + 300 * "1," + "1]"})
    assert collisions(drawing) == []
    assert all(box.right - box.left < 300 for box in drawing.boxes.values())


def test_a_page_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidValue, match="has no page 'Nowhere'; it has Layer_1"):
        draw(reliable_queue(ReliableQueue()), "Nowhere")


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_in_the_documentation_are_drawn_anew(page: str) -> None:
    """If not: `lavant petri show reliable-queue --out docs/images/petri`."""
    images = Path(__file__).resolve().parents[4] / "docs" / "images" / "petri"
    assert (images / f"{page}.svg").read_text() == draw(reliable_queue(ReliableQueue()), page).svg


def test_the_broker_in_order_in_the_documentation_is_drawn_anew() -> None:
    images = Path(__file__).resolve().parents[4] / "docs" / "images" / "petri"
    drawn = draw(reliable_queue(ReliableQueue(order="in-order")), "Broker").svg
    assert (images / "Broker-in-order.svg").read_text() == drawn

"""Files of CPN Tools: whole, with references that lead somewhere, and with inscriptions in CPN ML."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from lavant.core.errors import InvalidValue
from lavant.models.petri.cpn_tools import check_references, cpn_file
from lavant.models.petri.language.colours import Bool, Int, ListOf, Product, Real, RecordOf, Token
from lavant.models.petri.language.expressions import Function, Scope, typed
from lavant.models.petri.language.ml_source import ml_of, ml_taking
from lavant.models.petri.net import P_HIGH, Net
from lavant.models.petri.nets.reliable_queue import ReliableQueue, reliable_queue


def root_of(order: str = "out-of-order") -> ElementTree.Element:
    return ElementTree.fromstring(cpn_file(reliable_queue(ReliableQueue(order=order))).encode("iso-8859-1"))


@pytest.mark.parametrize("order", ["out-of-order", "in-order"])
def test_every_page_place_transition_and_arc_is_in_the_file(order: str) -> None:
    net, root = reliable_queue(ReliableQueue(order=order)), root_of(order)
    pages = {page.find("pageattr").attrib["name"]: page for page in root.iter("page")}  # type: ignore[union-attr]
    assert list(pages) == list(net.pages)
    for name, page in net.pages.items():
        assert [each.findtext("text") for each in pages[name].iter("place")] == list(page.places)
        assert len(list(pages[name].iter("trans"))) == len(page.transitions) + len(page.substitutions)
        sockets = sum(len(each.sockets) for each in page.substitutions.values())
        assert len(list(pages[name].iter("arc"))) == sum(len(t.arcs) for t in page.transitions.values()) + sockets


def test_each_substitution_transition_has_an_instance() -> None:
    root = root_of()
    instances = [each.attrib["trans"] for each in root.iter("instance") if "trans" in each.attrib]
    assert sorted(instances) == sorted(t.attrib["id"] for t in root.iter("trans") if t.find("subst") is not None)


@pytest.mark.parametrize(
    ("tag", "attribute", "value", "message"),
    [
        ("transend", "idref", "ID1", "its transend is no trans of its page"),
        ("placeend", "idref", "ID1", "its placeend is no place of its page"),
        ("subst", "subpage", "ID1", "subst refers to ID1, which does not exist"),
        ("subst", "portsock", "(ID1,ID2)", "subst refers to ID1, which does not exist"),
        ("place", "id", "ID1001", "two elements have the same id"),
    ],
)
def test_a_reference_to_nothing_is_found(tag: str, attribute: str, value: str, message: str) -> None:
    root = root_of()
    element = next(root.iter(tag))
    element.attrib[attribute] = value
    with pytest.raises(InvalidValue, match=message):
        check_references(root)


def test_a_blank_before_the_end_of_a_line_is_found() -> None:
    root = root_of()
    next(each for page in root.iter("page") for each in page.iter("text")).text = "a \nb"
    with pytest.raises(InvalidValue, match="blanks at the end of a line"):
        check_references(root)


INTEGER, REAL = Int("INT"), Real("REAL")
POINT = RecordOf("Point", (("x", INTEGER), ("t", REAL)))
SCOPE = Scope(
    {"INT": INTEGER, "REAL": REAL, "Point": POINT, "BOOL": Bool("BOOL")},
    {
        "n": INTEGER,
        "r": REAL,
        "p": POINT,
        "ns": ListOf("Ints", INTEGER),
        "ps": ListOf("Points", POINT),
        "pair": Product("Pair", (INTEGER, REAL)),
    },
)
SCOPE.functions["half"] = Function("half", {"x": REAL}, "x / 2", typed("x / 2", Scope(variables={"x": REAL})))


@pytest.mark.parametrize(
    ("text", "ml"),
    [
        ("n + 1", "(n + 1)"),
        ("-3 * n", "((~ 3) * n)"),
        ("n / 2", "(Real.fromInt(n) / 2.0)"),
        ("n // 2 + n % 3", "((n div 2) + (n mod 3))"),
        ("r + 1", "(r + 1.0)"),
        ("r == 1.5", "Real.==(r, 1.5)"),
        ("n != 3 and not n < 2", "((n <> 3) andalso (not (n < 2)))"),
        ("n if n > 0 else 0", "(if (n > 0) then n else 0)"),
        ("p.x + pair[0]", "((#x p) + (#1 pair))"),
        ("Point(x=n, t=0)", "{x=n, t=0.0}"),
        ("replace(p, x=1, t=r)", "(Point.set_t (Point.set_x p 1) r)"),
        ("[1, *ns]", "([1] ^^ ns)"),
        ("ns + [n]", "(ns ^^ [n])"),
        ("n in ns", "(mem ns n)"),
        ("first(ns) + len(rest(ns))", "((hd ns) + (length (tl ns)))"),
        ("[q.x for q in ps]", "(List.map (fn (q: Point) => (#x q)) ps)"),
        ("[q for q in ps if q.x > 1]", "(List.filter (fn (q: Point) => ((#x q) > 1)) ps)"),
        ("any(q.x == n for q in ps)", "(List.exists (fn (q: Point) => ((#x q) = n)) ps)"),
        ("replace(p, t=time())", "(Point.set_t p (time()))"),
        ("not r == 1.5", "(not (Real.==(r, 1.5)))"),
        ("exponential(n)", "exponential(Real.fromInt(n))"),
        ("bernoulli(0.5)", "(bernoulli(0.5) = 1)"),
        ("half(n)", "half(Real.fromInt(n))"),
        ("r if n > 1 else 0", "(if (n > 1) then r else 0.0)"),
        ("n < r", "(Real.fromInt(n) < r)"),
        ("1e16 + 1e-9", "(1e16 + 1e~09)"),
        (r"""'a"\n' + 'b'""", r'("a\"\n" ^ "b")'),
    ],
)  # fmt: skip
def test_an_expression_is_written_in_cpn_ml(text: str, ml: str) -> None:
    assert ml_of(typed(text, SCOPE)) == ml


@pytest.mark.parametrize("text", ["p == p", "p in ps", "r // 2"])
def test_what_cpn_ml_cannot_do_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="CPN ML"):
        ml_of(typed(text, SCOPE))


@pytest.mark.parametrize("text", ["_", "Point(x=n)"])
def test_a_pattern_that_leaves_something_out_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="an arc of CPN ML names every"):
        ml_taking(text, SCOPE, POINT)


@pytest.mark.parametrize("name", ["val", "é", "_x", "length", "P_LOW"])
def test_a_name_that_cpn_ml_does_not_allow_is_refused(name: str) -> None:
    net = Net("named")
    net.variables(**{name: net.colour(Int("INT"))})
    net.page("Top")
    with pytest.raises(InvalidValue, match=f"'{name}' cannot be a name in CPN ML"):
        cpn_file(net)


def test_tokens_with_time_stamps_are_added_with_three_signs() -> None:
    net = Net("timed")
    later = net.colour(Int("Later", timed=True))
    net.variables(n=net.colour(Int("INT")))
    page = net.page("Top")
    page.place("A", later, [7, Token(8, 1.5)])
    page.transition("T", takes={"A": "n"}, puts={"A": "(2`n @+ 1.5 ++ n + 1) if n > 3 else empty"})
    root = ElementTree.fromstring(cpn_file(net).encode("iso-8859-1"))
    assert root.findtext(".//place/initmark/text") == "1`7@0.0+++1`8@1.5"
    texts = [each.findtext("annot/text") for each in root.iter("arc")]
    assert texts == ["n", "(if (n > 3) then 2`n@+1.5+++1`(n + 1)@+0.0 else empty)"]


def test_fusion_sets_list_their_members() -> None:
    net = Net("fused")
    integer = net.colour(Int("INT", (0, 3)))
    page = net.page("Top")
    page.place("A", integer, [1], fusion="both")
    page.place("B", integer, fusion="both")
    root = ElementTree.fromstring(cpn_file(net).encode("iso-8859-1"))
    [fusion] = root.iter("fusion")
    assert fusion.attrib["name"] == "both"
    assert {each.attrib["idref"] for each in fusion} == {place.attrib["id"] for place in root.iter("place")}
    assert [place.findtext("initmark/text") for place in root.iter("place")] == ["1`1", "1`1"]


def test_priorities_are_declared_as_in_every_file_of_cpn_tools() -> None:
    net = Net("urgent")
    integer = net.colour(Int("INT"))
    net.variables(n=integer)
    page = net.page("Top")
    page.place("A", integer, [1])
    page.transition("First", takes={"A": "n"}, priority=P_HIGH)
    page.transition("Other", takes={"A": "n"}, priority=-7)
    root = ElementTree.fromstring(cpn_file(net).encode("iso-8859-1"))
    assert [each.findtext("priority/text") for each in root.iter("trans")] == ["P_HIGH", "~7"]
    declared = [each.findtext("layout") for each in root.iter("ml")]
    assert declared == ["val P_HIGH = 100;", "val P_NORMAL = 1000;", "val P_LOW = 10000;"]


def test_a_delay_that_cpn_tools_would_give_to_tokens_that_stay_is_refused() -> None:
    """There, an arc with two arrows takes a token and puts it back, and a transition delays all that it puts."""
    net = Net("read")
    later = net.colour(Int("Later", timed=True))
    net.variables(n=later)
    page = net.page("Top")
    page.place("A", later, [1])
    page.place("B", later)
    page.transition("T", reads={"A": "n"}, puts={"B": "n"}, delay="5")
    with pytest.raises(InvalidValue, match=r"transition 'T': CPN Tools would delay .* reads from 'A', too"):
        cpn_file(net)

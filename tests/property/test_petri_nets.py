"""Random nets: the compiled simulator and state space against the definition of coloured Petri nets."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lavant.models.petri.language.colours import Int, Product
from lavant.models.petri.net import Net
from lavant.models.petri.simulation import Simulation
from lavant.models.petri.state_space import explore
from lavant.models.petri.strong_components import strong_components

DOMAIN = range(3)
PLACES = ("A", "B", "P")
"""`P` holds pairs."""
STATES_MAX = 150

Arcs = dict[str, list[str]]
Drawn = tuple[Arcs, Arcs, Arcs, str]
Marking = tuple[tuple[object, ...], ...]

single = st.sampled_from(["x", "y", "0", "(x + 1) % 3", "2`x", "2`y"])
pairs = st.sampled_from(["(x, y)", "(y, x)", "(x, x)", "(x, 1)", "(x, _)"])
single_put = st.sampled_from(["x", "y", "2", "(x + y) % 3", "2`x", "(x if x < y else empty)"])
pair_put = st.sampled_from(["(x, y)", "(y, 0)", "2`(x, y)"])
guards = st.sampled_from(["", "x != y", "x < 2", "x == y or y > 0", "x <= y and y != 1"])


def arcs_of(one: st.SearchStrategy[str], two: st.SearchStrategy[str], least: int) -> st.SearchStrategy[Arcs]:
    given_places = st.fixed_dictionaries(
        {},
        optional={
            "A": st.lists(one, min_size=1, max_size=2),
            "B": st.lists(one, min_size=1, max_size=1),
            "P": st.lists(two, min_size=1, max_size=2),
        },
    )
    return given_places.filter(lambda found: len(found) >= least)


transitions = st.tuples(
    arcs_of(single, pairs, 0), arcs_of(single, pairs, 0), arcs_of(single_put, pair_put, 0), guards
).filter(lambda found: bool(found[0] or found[1]))
"""What each takes, reads and puts, and its guard."""
nets = st.lists(transitions, min_size=1, max_size=3)
markings = st.tuples(
    st.lists(st.sampled_from(DOMAIN), max_size=3),
    st.lists(st.sampled_from(DOMAIN), max_size=2),
    st.lists(st.tuples(st.sampled_from(DOMAIN), st.sampled_from(DOMAIN)), max_size=2),
)


def built(given_transitions: list[Drawn], marking: tuple[list[object], ...]) -> Net:
    net = Net("random")
    integer = net.colour(Int("D", (0, 2)))
    pair = net.colour(Product("DxD", (integer, integer)))
    net.variables(x=integer, y=integer)
    page = net.page("Top")
    for name, colour, tokens in zip(PLACES, (integer, integer, pair), marking, strict=True):
        page.place(name, colour, tokens)
    for number, (*arcs, guard) in enumerate(given_transitions):
        takes, reads, puts = ({place: " ++ ".join(terms) for place, terms in each.items()} for each in arcs)
        page.transition(f"T{number}", takes=takes, reads=reads, puts=puts, guard=guard)
    return net


def flat(arcs: Arcs) -> list[tuple[str, str]]:
    return [(place, term) for place, terms in arcs.items() for term in terms]


def evaluated(term: str, x: int, y: int) -> Counter[object]:
    """A term as a multiset."""
    count, quoted, token = term.partition("`")
    text, number = (token, int(count)) if quoted else (term, 1)
    if " else empty" in text:
        text, _, condition = text.removeprefix("(").removesuffix(" else empty)").partition(" if ")
        number = number if eval(condition, {"x": x, "y": y}) else 0
    return Counter({eval(text, {"x": x, "y": y}): number}) if number else Counter()


def successors(given_transitions: list[Drawn], marking: Marking) -> set[Marking]:
    """By the definition: every assignment of values to variables (and wildcards), one after the other."""
    found = set()
    held = [Counter(tokens) for tokens in marking]
    for takes, reads, puts, guard in given_transitions:
        wanted = [(*each, False) for each in flat(takes)] + [(*each, True) for each in flat(reads)]
        wild = sum(term.count("_") for _, term, _ in wanted)
        for x, y, *others in itertools.product(DOMAIN, repeat=2 + wild):
            if guard and not eval(guard, {"x": x, "y": y}):
                continue
            values = iter(others)
            after, left = [Counter(each) for each in held], [Counter(each) for each in held]
            for place, term, is_read in wanted:
                tokens = evaluated(term.replace("_", str(next(values, ""))) if "_" in term else term, x, y)
                left[PLACES.index(place)].subtract(tokens)
                if not is_read:
                    after[PLACES.index(place)].subtract(tokens)
            if any(count < 0 for each in left for count in each.values()):
                continue
            for place, term in flat(puts):
                after[PLACES.index(place)].update(evaluated(term, x, y))
            found.add(tuple(tuple(sorted(each.elements())) for each in after))  # type: ignore[type-var]
    return found


def reachable(given_transitions: list[Drawn], first: Marking) -> dict[Marking, set[Marking]] | None:
    graph: dict[Marking, set[Marking]] = {}
    waiting = [first]
    while waiting:
        marking = waiting.pop()
        if marking not in graph:
            graph[marking] = successors(given_transitions, marking)
            waiting += graph[marking]
            if len(graph) > STATES_MAX:
                return None
    return graph


def initial(marking: tuple[list[object], ...]) -> Marking:
    return tuple(tuple(sorted(tokens)) for tokens in marking)  # type: ignore[type-var]


@settings(max_examples=40)
@given(nets, markings)
def test_a_state_space_holds_exactly_the_markings_of_the_definition(
    given_transitions: list[Drawn], marking: tuple[list[object], ...]
) -> None:
    graph = reachable(given_transitions, initial(marking))
    space = explore(built(given_transitions, marking).flatten(), states_max=STATES_MAX)
    if graph is None:
        assert not space.is_complete
        return
    assert space.is_complete
    seen = {
        tuple(column.values[n] for column, n in zip(space._search.columns, state, strict=True))
        for state in space._search.states
    }
    assert seen == set(graph)
    dead = {tuple(space._search._tokens(at)) for at in space.dead_markings}
    assert dead == {each for each, after in graph.items() if not after}
    assert space.unbounded == {}


@settings(max_examples=60)
@given(nets, markings, st.integers(0, 5))
def test_a_simulation_stops_only_where_nothing_can_occur_and_makes_only_possible_steps(
    given_transitions: list[Drawn], marking: tuple[list[object], ...], seed: int
) -> None:
    run = Simulation(built(given_transitions, marking).flatten(), np.random.default_rng(seed))
    now = initial(marking)
    taken_from = {place for takes, reads, _, _ in given_transitions for place in (*takes, *reads)}
    for _ in range(25):
        possible = successors(given_transitions, now)
        if run.run(steps=1) == 0:
            assert possible == set()
            return
        after = []
        for place, tokens in run.marking().items():
            is_sink = place.partition("'")[2] not in taken_from
            after.append(tokens if is_sink else tuple(sorted(each.value for each in tokens)))  # type: ignore[union-attr]
        shown = {
            tuple(len(t) if isinstance(a, int) else t for t, a in zip(each, after, strict=True)): each
            for each in possible
        }
        assert tuple(after) in shown
        if any(isinstance(each, int) for each in after):
            return
        now = tuple(after)  # type: ignore[arg-type]


@given(
    st.integers(1, 7).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=14))
    )
)
def test_strong_components_are_those_of_mutual_reachability(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, arcs = graph
    starts, targets = [0], []
    for node in range(count):
        targets += [target for source, target in arcs if source == node]
        starts.append(len(targets))
    reach = np.eye(count, dtype=bool)
    for source, target in arcs:
        reach[source, target] = True
    for _ in range(count):
        reach = (reach.astype(int) @ reach.astype(int)) > 0
    mutual = reach & reach.T
    components = {tuple(np.flatnonzero(row)) for row in mutual}
    terminal = [len(each) for each in components if reach[each[0]].sum() == len(each)]
    number, sizes = strong_components(starts, targets)
    assert number == len(components)
    assert sorted(sizes) == sorted(terminal)

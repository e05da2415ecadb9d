"""State spaces: dead transitions, places without bound, home markings, and the bound of states."""

from __future__ import annotations

import pytest

from lavant.core.errors import InvalidValue
from lavant.models.petri import state_space
from lavant.models.petri.language.colours import Bool, Int, Product, Real, String, Unit
from lavant.models.petri.net import P_HIGH, P_LOW, Net, Page
from lavant.models.petri.state_space import Invariant, explore


def a_page() -> tuple[Net, Page]:
    net = Net("a net")
    net.colour(Unit("UNIT"))
    integer = net.colour(Int("INT"))
    net.variables(n=integer, m=integer, ok=net.colour(Bool("BOOL")), r=net.colour(Real("REAL")))
    return net, net.page("Top")


def test_a_transition_that_never_occurs_is_dead() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], [0])
    page.transition("Up", takes={"A": "n"}, puts={"A": "n + 1"}, guard="n < 3")
    page.transition("Never", takes={"A": "n"}, guard="n > 3")
    space = explore(net.flatten())
    assert (space.states, space.arcs, space.is_complete) == (4, 3, True)
    assert space.dead_transitions == ["Top'Never"]
    assert [space.marking(at) for at in space.dead_markings] == [{"Top'A": "1`3"}]
    assert [step.binding["n"] for step in space.trace(3)] == [0, 1, 2]
    assert (space.components, space.home_markings) == (4, 1)


def test_an_invariant_of_no_place_is_refused() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], [0])
    with pytest.raises(InvalidValue, match="invariant 'always' is about no place"):
        explore(net.flatten(), invariants=[Invariant("always", (), lambda: True)])


def test_a_property_that_cannot_be_decided_is_told_with_the_way_there() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], [2])
    page.transition("T", takes={"A": "n"}, puts={"A": "n - 1"}, guard="n > 0")
    broken = Invariant("divides", ("A",), lambda held: 1 / held[0] > 0)
    with pytest.raises(InvalidValue, match="'divides' cannot be decided after Top'T, Top'T: ZeroDivisionError: div"):
        explore(net.flatten(), invariants=[broken])


def test_a_random_number_between_reversed_bounds_is_refused_there_too() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], [3])
    page.transition("T", takes={"A": "n"}, action="m = discrete(n, 1)", puts={"A": "m"})
    with pytest.raises(InvalidValue, match=r"transition Top'T, after nothing: discrete\(3, 1\) cannot be drawn"):
        explore(net.flatten())


def test_a_cycle_is_one_component_whose_markings_are_home() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], [0])
    page.transition("Turn", takes={"A": "n"}, puts={"A": "(n + 1) % 5"})
    space = explore(net.flatten())
    assert (space.states, space.components, space.home_markings, space.dead_markings) == (5, 1, 5, [])


def test_a_place_that_grows_for_ever_is_unbounded_with_the_path_that_repeats() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["UNIT"], [()])
    page.place("B", net.scope.colours["UNIT"])
    page.transition("Make", takes={"A": "()"}, puts={"A": "()", "B": "()"})
    space = explore(net.flatten(), states_max=50)
    assert not space.is_complete
    assert list(space.unbounded) == ["Top'B"]
    assert {step.transition for step in space.unbounded["Top'B"]} == {"Top'Make"}
    assert space.home_markings is None
    assert space.bounds["Top'B"].is_growing


def test_a_search_ends_where_a_place_gains_too_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markings are kept whole, so a place that grows by one in each state would cost the square of the states."""
    monkeypatch.setattr(state_space, "TOKENS_MAX", 30)
    net, page = a_page()
    page.place("A", net.scope.colours["UNIT"], [()])
    page.place("B", net.scope.colours["UNIT"])
    page.transition("Make", takes={"A": "()"}, puts={"A": "()", "B": "()"})
    space = explore(net.flatten())
    assert (space.overfull, space.is_complete, space.states) == ("Top'B", False, 34)
    assert [step.transition for step in space.unbounded["Top'B"]] == ["Top'Make"]


def test_a_counter_is_no_proof_of_a_place_without_bound() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], [0])
    page.transition("Up", takes={"A": "n"}, puts={"A": "n + 1"})
    space = explore(net.flatten(), states_max=50)
    assert not space.is_complete
    assert space.unbounded == {}
    assert space.bounds["Top'A"].greatest == 1


def test_a_random_boolean_takes_both_values_and_a_certain_one_only_one() -> None:
    for probability, states in (("0.3", 3), ("1.0", 2), ("0.0", 2)):
        net, page = a_page()
        page.place("A", net.scope.colours["INT"], [0])
        page.place("B", net.scope.colours["BOOL"])
        page.transition("Toss", takes={"A": "n"}, action=f"ok = bernoulli({probability})", puts={"B": "ok"})
        assert explore(net.flatten()).states == states


def test_a_random_number_cannot_be_enumerated() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["REAL"], [0.0])
    page.transition("Draw", takes={"A": "_"}, action="r = exponential(1.0)", puts={"A": "r"})
    with pytest.raises(InvalidValue, match=r"Top'Draw, action: .*too many values for a state space"):
        explore(net.flatten())


def test_random_times_that_only_delays_depend_on_do_not_matter() -> None:
    net, page = a_page()
    later = net.colour(Int("Later", timed=True))
    net.variables(twice=net.scope.colours["REAL"])
    page.place("A", later, [1])
    page.transition(
        "Serve",
        takes={"A": "n"},
        action="r = exponential(1.0); twice = 2 * r; ok = bernoulli(0.5); m = n + 1",
        puts={"A": "m @+ twice if ok else n"},
        delay="r",
        guard="n < 3",
    )
    space = explore(net.flatten())
    assert (space.states, space.is_complete) == (3, True)
    assert space.trace(1)[0].binding == {"n": 1, "m": 2, "ok": True}


def test_a_transition_of_low_priority_waits_in_the_state_space_too() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], [0])
    page.transition("Up", takes={"A": "n"}, puts={"A": "n + 1"}, guard="n < 3", priority=P_HIGH)
    page.transition("Jump", takes={"A": "n"}, puts={"A": "n + 100"}, guard="n < 100", priority=P_LOW)
    assert explore(net.flatten()).states == 5


def simple_protocol(packets_max: int) -> Net:
    """K. Jensen, L. M. Kristensen, *Coloured Petri Nets*, 2009: a lossy network for so many packets.

    The sender ignores acknowledgements that are older than another one.
    """
    net = Net("simple protocol")
    number, data = net.colour(Int("NO")), net.colour(String("DATA"))
    packet, limit = net.colour(Product("NOxDATA", (number, data))), net.colour(Unit("UNIT"))
    net.variables(n=number, k=number, d=data, received=data, success=net.colour(Bool("BOOL")))
    page = net.page("Protocol")
    page.place("Packets_To_Send", packet, enumerate(("COL", "OUR", "ED ", "PET"), start=1))
    for name, colour, tokens in (
        ("NextSend", number, [1]),
        ("A", packet, []),
        ("B", packet, []),
        ("C", number, []),
        ("D", number, []),
        ("NextRec", number, [1]),
        ("Data_Received", data, [""]),
        ("Limit", limit, packets_max * [()]),
    ):
        page.place(name, colour, tokens)
    lost = "empty if success else ()"
    page.transition(
        "Send_Packet",
        reads={"Packets_To_Send": "(n, d)", "NextSend": "n"},
        takes={"Limit": "()"},
        puts={"A": "(n, d)"},
    )
    page.transition(
        "Transmit_Packet",
        takes={"A": "(n, d)"},
        action="success = bernoulli(0.9)",
        puts={"B": "(n, d) if success else empty", "Limit": lost},
    )
    page.transition(
        "Receive_Packet",
        takes={"B": "(n, d)", "NextRec": "k", "Data_Received": "received"},
        puts={
            "Data_Received": "received + d if n == k else received",
            "NextRec": "k + 1 if n == k else k",
            "C": "k + 1 if n == k else k",
        },
    )
    page.transition(
        "Transmit_Ack",
        takes={"C": "n"},
        action="success = bernoulli(0.9)",
        puts={"D": "n if success else empty", "Limit": lost},
    )
    page.transition(
        "Receive_Ack", takes={"D": "n", "NextSend": "k"}, puts={"NextSend": "n if n > k else k", "Limit": "()"}
    )
    return net


@pytest.mark.parametrize(("packets_max", "states", "arcs"), [(1, 33, 44), (2, 293, 764), (3, 1_829, 6_860)])
def test_the_protocol_of_the_textbook_has_as_many_states_as_there(packets_max: int, states: int, arcs: int) -> None:
    space = explore(simple_protocol(packets_max).flatten())
    assert (space.states, space.arcs) == (states, arcs)
    (end,) = space.dead_markings
    assert space.marking(end)["Protocol'Data_Received"] == '1`"COLOURED PET"'
    assert space.home_markings == 1

"""The simulator: time, priorities, hierarchy, monitors and chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lavant.core.errors import InvalidValue
from lavant.models.petri.cpn_tools import cpn_file
from lavant.models.petri.language.colours import Bool, Enumeration, Int, ListOf, Product, Real, String, Token, Unit
from lavant.models.petri.monitors import Breakpoint, DataCollection, Monitor, Occurrences, Size
from lavant.models.petri.net import IN, OUT, P_HIGH, P_LOW, Net, Page
from lavant.models.petri.replications import replicate
from lavant.models.petri.simulation import Simulation
from lavant.models.petri.state_space import explore


def a_page() -> tuple[Net, Page]:
    net = Net("a net")
    integer, real, boolean = net.colour(Int("INT")), net.colour(Real("REAL")), net.colour(Bool("BOOL"))
    net.colour(Unit("UNIT"))
    net.colour(Unit("Tick", timed=True))
    net.colour(Int("Later", timed=True))
    net.colour(Product("Pair", (integer, integer)))
    net.colour(ListOf("Ints", integer))
    net.colour(Int("Die", (1, 6)))
    net.colour(Enumeration("Light", ("red", "green")))
    net.variables(n=integer, m=integer, k=integer, r=real, ok=boolean, ints=net.scope.colours["Ints"])
    return net, net.page("Top")


def simulated(net: Net, *monitors: Monitor, seed: int = 1) -> Simulation:
    return Simulation(net.flatten(), np.random.default_rng(seed), monitors)


def tokens(run: Simulation, place: str) -> list[object]:
    held = run.marking()[place]
    assert isinstance(held, list)
    return sorted(token.value for token in held)


def test_the_clock_moves_to_the_next_token_and_tokens_wait_for_their_time() -> None:
    net, page = a_page()
    colours = net.scope.colours
    page.place("Start", colours["Later"], [5, 2, 9])
    page.place("Wait", colours["Later"])
    page.place("Seen", colours["Ints"], [[]])
    page.transition("Go", takes={"Start": "n"}, puts={"Wait": "n @+ n"}, delay="0.5")
    page.transition("Come", takes={"Wait": "n", "Seen": "ints"}, puts={"Seen": "ints + [n]"})
    run = simulated(net, DataCollection("when", "Come", "time()"))
    assert run.run(until=6.0) == 5
    assert run.ended == "time"
    assert run.now == 6.0
    assert run.marking()["Top'Wait"] == [Token(9, 9.5)]
    run.run(until=100.0)
    assert run.ended == "dead"
    assert tokens(run, "Top'Seen") == [(2, 5, 9)]
    assert run.values("when").tolist() == [2.5, 5.5, 9.5]


def test_initial_tokens_may_wait_for_their_time_too() -> None:
    net, page = a_page()
    page.place("Start", net.scope.colours["Later"], [1, Token(2, 5.0), Token(3, 2.5)])
    page.place("End", net.scope.colours["Ints"], [[]])
    page.transition("Go", takes={"Start": "n", "End": "ints"}, puts={"End": "ints + [n]"})
    run = simulated(net, DataCollection("when", "Go", "time()"), Size("waiting", "Start"))
    assert run.run(until=3.0) == 2
    assert run.marking()["Top'Start"] == [Token(2, 5.0)]
    run.run(until=10.0)
    assert tokens(run, "Top'End") == [(1, 3, 2)]
    assert run.values("when").tolist() == [0.0, 2.5, 5.0]
    assert run.statistics()["waiting"].greatest == 3
    assert run.statistics()["waiting"].mean == pytest.approx((2 * 2.5 + 2.5) / run.now)


def test_of_the_enabled_transitions_those_of_the_least_priority_number_go_first() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], range(20))
    page.place("Seen", net.scope.colours["Ints"], [[]])
    page.transition("Low", takes={"A": "n", "Seen": "ints"}, puts={"Seen": "ints + [-1]"}, priority=P_LOW)
    page.transition(
        "High", takes={"A": "n", "Seen": "ints"}, puts={"Seen": "ints + [n]"}, guard="n % 2 == 0", priority=P_HIGH
    )
    run = simulated(net)
    run.run()
    [(seen)] = tokens(run, "Top'Seen")
    assert isinstance(seen, tuple)
    assert set(seen[:10]) == set(range(0, 20, 2))
    assert seen[10:] == (-1,) * 10


def test_a_page_may_be_used_twice_and_fusion_places_are_one() -> None:
    net, page = a_page()
    integer = net.scope.colours["INT"]
    page.place("A", integer, [1])
    page.place("B", integer)
    page.place("C", integer)
    page.place("Log", integer, fusion="log")
    below = net.page("Add")
    below.place("From", integer, port=IN)
    below.place("To", integer, port=OUT)
    below.place("Log", integer, fusion="log")
    below.transition("Step", takes={"From": "n"}, puts={"To": "n + 10", "Log": "n"})
    page.substitute("First", "Add", {"From": "A", "To": "B"})
    page.substitute("Second", "Add", {"From": "B", "To": "C"})
    page.transition("Read", takes={"Log": "n", "C": "m"}, puts={"Log": "n", "C": "m"}, guard="n == -1")
    run = simulated(net)
    run.run()
    assert tokens(run, "Top'C") == [21]
    assert tokens(run, "Top'Log") == [1, 11]
    assert run.counts() == {"Top'Read": 0, "Add'Step": 1, "Add(2)'Step": 1}


def test_arcs_take_and_put_several_tokens() -> None:
    net, page = a_page()
    integer = net.scope.colours["INT"]
    page.place("A", integer, [7, 7, 7, 3])
    page.place("B", integer)
    page.place("L", net.scope.colours["Ints"], [[4, 5, 6]])
    page.transition("Take", takes={"A": "2`n ++ m"}, puts={"B": "3`m ++ n"}, guard="m == 3")
    page.transition("Head", takes={"L": "[n, *ints]"}, puts={"L": "ints", "B": "n if n != 5 else empty"})
    page.transition("Read", reads={"B": "n"}, takes={"A": "100`m"})
    run = simulated(net)
    run.run()
    assert tokens(run, "Top'A") == [7]
    assert tokens(run, "Top'B") == [3, 3, 3, 4, 6, 7]
    assert tokens(run, "Top'L") == [()]


def test_lists_become_tokens_and_free_variables_take_every_value() -> None:
    net, page = a_page()
    page.place("L", net.scope.colours["Ints"], [[1, 2, 3]])
    page.place("A", net.scope.colours["INT"])
    page.place("Lamp", net.scope.colours["Light"])
    net.variables(light=net.scope.colours["Light"])
    page.transition("Spread", takes={"L": "ints"}, puts={"A": "each([n + 1 for n in ints])"})
    page.transition("Switch", takes={"A": "n"}, puts={"Lamp": "light"}, guard="light != red")
    page.transition("Look", takes={"Lamp": "light"}, guard="light == red")
    run = simulated(net)
    run.run()
    assert tokens(run, "Top'Lamp") == ["green"] * 3


def test_a_value_outside_of_its_colour_set_stops_the_run_and_names_the_transition() -> None:
    net, page = a_page()
    net.variables(die=net.scope.colours["Die"])
    page.place("A", net.scope.colours["Die"], [5])
    page.transition("Roll", takes={"A": "die"}, puts={"A": "die + 1"})
    with pytest.raises(InvalidValue, match=r"transition Top'Roll, at time 0, step 2: 7 is no value of colour set Die"):
        simulated(net).run()


def test_elements_of_a_list_are_checked_when_they_become_tokens() -> None:
    net, page = a_page()
    page.place("L", net.scope.colours["Ints"], [[3, 9]])
    page.place("A", net.scope.colours["Die"])
    page.transition("Spread", takes={"L": "ints"}, puts={"A": "each(ints)"})
    page.transition("Use", takes={"A": "_"})
    with pytest.raises(InvalidValue, match="transition Top'Spread, at time 0, step 1: 9 is no value of colour set Die"):
        simulated(net).run()
    with pytest.raises(InvalidValue, match="transition Top'Spread, after nothing: 9 is no value of colour set Die"):
        explore(net.flatten())


def test_an_empty_list_without_a_head_names_the_transition() -> None:
    net, page = a_page()
    page.place("L", net.scope.colours["Ints"], [[]])
    page.transition("Head", takes={"L": "ints"}, puts={"L": "rest(ints) + [first(ints)]"})
    with pytest.raises(InvalidValue, match="transition Top'Head"):
        simulated(net).run()


@pytest.mark.parametrize(
    "arcs", [{"reads": {"A": "n ++ m"}}, {"reads": {"A": "2`n"}}, {"takes": {"A": "n"}, "reads": {"A": "m"}}]
)
def test_one_token_cannot_be_two(arcs: dict[str, dict[str, str]]) -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], [1])
    page.transition("Both", **arcs, puts={"A": "n"} if "takes" in arcs else {})  # type: ignore[arg-type]
    assert simulated(net).run(steps=3) == 0


@pytest.mark.parametrize("given", [{"until": 4.0}, {"until": math.nan}, {"until": "9"}, {"steps": -1}, {"steps": 1.5}])
def test_a_run_ends_in_the_future(given: dict[str, float]) -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["Later"], [1])
    page.transition("T", takes={"A": "n"}, puts={"A": "n @+ 1"})
    run = simulated(net)
    run.run(until=5.0)
    with pytest.raises(InvalidValue, match=f"got {next(iter(given.values()))}"):
        run.run(**given)  # type: ignore[arg-type]
    assert (run.now, run.run(until=5.0)) == (5.0, 0)


def test_a_negative_delay_names_the_transition() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["Later"], [1])
    page.transition("Back", takes={"A": "n"}, puts={"A": "n @+ (n - 2.0)"})
    with pytest.raises(InvalidValue, match=r"transition Top'Back, .*: the delay is -1.0"):
        simulated(net).run(until=1.0)


def test_a_negative_number_of_tokens_names_the_transition() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], [1])
    page.transition("Owe", takes={"A": "n"}, puts={"A": "(n - 3)`n"})
    with pytest.raises(InvalidValue, match=r"transition Top'Owe, at time 0, step 1: -2 tokens cannot be put"):
        simulated(net).run()
    with pytest.raises(InvalidValue, match=r"transition Top'Owe, after nothing: -2 tokens cannot be put"):
        explore(net.flatten())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"action": "m = discrete(n, 1)", "puts": {"B": "m"}}, r"discrete\(3, 1\) cannot be drawn"),
        ({"action": "ok = bernoulli(n)"}, r"bernoulli\(3\) cannot be drawn"),
        ({"puts": {"L": "n @+ exponential(n - 3)"}}, r"exponential\(0\) cannot be drawn"),
        ({"puts": {"L": "n @+ erlang(n, 1.0 - n)"}}, r"erlang\(3, -2\) cannot be drawn"),
        ({"puts": {"L": "n @+ uniform(n, 1.0)"}}, r"uniform\(3, 1\) cannot be drawn"),
        ({"puts": {"L": "n @+ gamma(1.0, 3.0 - n)"}}, r"gamma\(1, 0\) cannot be drawn"),
        ({"puts": {"L": "n @+ lognormal(n, 1.0 - n)"}}, r"lognormal\(3, -2\) cannot be drawn"),
        ({"puts": {"A": "1000001`n"}}, "1000001 tokens cannot be put"),
        ({"puts": {"D": "n + 4"}}, "7 is no value of colour set Die"),
    ],
)
def test_what_cannot_be_drawn_or_put_names_the_transition(given: dict[str, object], message: str) -> None:
    net, page = a_page()
    for name, colour in (("A", "INT"), ("B", "INT"), ("L", "Later"), ("D", "Die")):
        page.place(name, net.scope.colours[colour], [3] if name == "A" else [])
    page.transition("T", takes={"A": "n"}, **given)  # type: ignore[arg-type]
    page.transition("Later", takes={"L": "n"})
    with pytest.raises(InvalidValue, match=rf"transition Top'T, at time 0, step 1: {message}"):
        simulated(net).run(steps=1)


def test_random_values_with_arguments_of_the_moment_have_their_means() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["Later"], [4])
    page.transition(
        "T", takes={"A": "n"}, action="m = discrete(n, n + 4); ok = bernoulli(n / 5)", puts={"A": "n @+ exponential(n)"}
    )
    run = simulated(net, DataCollection("discrete", "T", "m"), DataCollection("share", "T", "1 if ok else 0"))
    run.run(steps=20_000)
    assert run.now == pytest.approx(20_000 / 4, rel=0.03)
    assert run.statistics()["discrete"].mean == pytest.approx(6.0, rel=0.01)
    assert set(run.values("discrete")) == {4, 5, 6, 7, 8}
    assert run.statistics()["share"].mean == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(
    ("inscription", "mean", "scv"),
    [
        ("gamma(2.0, 0.25)", 0.125, 4.0),
        ("gamma(n, 2.5)", 0.625, 0.4),
        ("lognormal(-1.0, 0.5)", math.exp(-0.75), math.expm1(0.5)),
        ("lognormal(0.0 - n, n / 4)", math.exp(-3.5), math.expm1(1.0)),
        ("(exponential(1.5) if bernoulli(0.75) else exponential(0.5))", 1.0, 5 / 3),
    ],
)
def test_times_between_tokens_have_mean_and_variability_of_their_distribution(
    inscription: str, mean: float, scv: float
) -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["Later"], [4])
    page.transition("T", takes={"A": "n"}, puts={"A": f"n @+ {inscription}"})
    run = simulated(net, DataCollection("when", "T", "time()"))
    run.run(steps=30_000)
    gaps = np.diff(run.values("when"))
    assert gaps.mean() == pytest.approx(mean, rel=0.03)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(scv, rel=0.15)


def test_a_net_may_have_a_function_and_a_value_of_the_name_of_a_later_distribution() -> None:
    net, page = a_page()
    net.values(gamma=0.5)
    net.function("lognormal", "x + 1", x=net.scope.colours["INT"])
    page.place("A", net.scope.colours["Later"], [1])
    page.transition("T", takes={"A": "n"}, guard="lognormal(n) < 5", puts={"A": "lognormal(n) @+ gamma"})
    run = simulated(net)
    assert (run.run(until=100.0), run.ended) == (3, "dead")
    assert run.marking()["Top'A"] == [Token(4)]
    assert "lognormal(n)@+gamma" in cpn_file(net)


def test_strings_are_joined_and_branches_of_integers_and_reals_are_reals() -> None:
    net, page = a_page()
    text = net.colour(String("Text"))
    net.variables(s=text)
    page.place("A", text, ["a"])
    page.place("R", net.scope.colours["REAL"], [0.0])
    page.transition("T", takes={"A": "s", "R": "r"}, puts={"A": "s + 'b;+'", "R": "1 if r > 0.2 else 0.5"})
    run = simulated(net)
    run.run(steps=2)
    assert (tokens(run, "Top'A"), tokens(run, "Top'R")) == (["ab;+b;+"], [1.0])


def test_monitors_count_observe_measure_and_stop() -> None:
    net, page = a_page()
    page.place("Clock", net.scope.colours["Tick"], [()])
    page.place("Count", net.scope.colours["INT"], [0])
    page.place("Held", net.scope.colours["UNIT"])
    page.transition(
        "Tick",
        takes={"Clock": "()", "Count": "n"},
        puts={"Clock": "() @+ 2.0", "Count": "n + 1", "Held": "()"},
    )
    run = simulated(
        net,
        DataCollection("even", "Tick", "n", when="n % 2 == 0"),
        Occurrences("ticks", "Tick"),
        Size("held", "Held"),
        Size("count", "Count", "token"),
        Breakpoint("enough", "Tick", when="n == 4"),
    )
    assert run.run(until=100.0) == 5
    assert run.ended == "breakpoint"
    found = run.statistics()
    assert run.values("even").tolist() == [0.0, 2.0, 4.0]
    assert found["ticks"].count == 5
    assert (found["held"].mean, found["held"].greatest) == (2.5, 5)
    assert found["count"].mean == 2.5
    run.reset_monitors()
    run.run(until=9.0)
    assert run.statistics()["ticks"].count == 0
    assert run.statistics()["held"].mean == 5.0


@pytest.mark.parametrize(
    ("monitor", "message"),
    [
        (DataCollection("m", "Nowhere", "1"), "monitor 'm': transition 'Nowhere' does not exist; there are Top'Tick"),
        (DataCollection("m", "Tick", "r"), "monitor 'm': `r` is no variable"),
        (Size("m", "Nowhere"), "monitor 'm': place 'Nowhere' does not exist"),
        (Breakpoint("m", "Tick", "n"), "monitor 'm': `n` is of colour set INT, not BOOL"),
    ],
)
def test_a_monitor_of_something_that_does_not_exist_is_refused(monitor: Monitor, message: str) -> None:
    net, page = a_page()
    page.place("Count", net.scope.colours["INT"], [0])
    page.transition("Tick", takes={"Count": "n"}, puts={"Count": "n + 1"}, guard="n < 3")
    with pytest.raises(InvalidValue) as error:
        simulated(net, monitor)
    assert message in str(error.value)


def one_server(arrivals_per_s: float, services_per_s: float) -> tuple[Net, tuple[Monitor, ...]]:
    net, page = a_page()
    net.colour(Product("Job", (net.scope.colours["INT"], net.scope.colours["REAL"]), timed=True))
    net.variables(job=net.scope.colours["Job"])
    page.place("Next", net.scope.colours["Tick"], [()])
    page.place("Queue", net.scope.colours["Job"])
    page.place("Free", net.scope.colours["UNIT"], [()])
    page.place("Busy", net.scope.colours["Job"])
    net.values(arrivals=arrivals_per_s, services=services_per_s)
    page.transition(
        "Arrive", takes={"Next": "()"}, puts={"Next": "() @+ exponential(arrivals)", "Queue": "(1, time())"}
    )
    page.transition("Start", takes={"Queue": "job", "Free": "()"}, puts={"Busy": "job @+ exponential(services)"})
    page.transition("End", takes={"Busy": "job"}, puts={"Free": "()"})
    return net, (DataCollection("response", "End", "time() - job[1]"), Size("busy", "Busy"), Size("waiting", "Queue"))


def test_a_queue_with_one_server_is_as_long_as_theory_says() -> None:
    """M/M/1 in random order: W = 1 / (μ - λ), whatever the order; the server is busy λ / μ of the time."""
    net, monitors = one_server(0.5, 1.0)
    rng = np.random.default_rng(5)
    found = replicate(net.flatten(), monitors, rng, replications=12, until=4_000.0, warm_up=100.0).estimates
    for name, wanted in (("response", 2.0), ("busy", 0.5), ("waiting", 0.5)):
        assert abs(found[name].mean - wanted) < 2 * found[name].half_width, name
        assert found[name].half_width < 0.1 * wanted


def test_the_same_generator_gives_the_same_run_and_another_one_another() -> None:
    net, monitors = one_server(0.9, 1.0)
    flat = net.flatten()
    means = []
    for seed in (1, 1, 2):
        run = Simulation(flat, np.random.default_rng(seed), monitors)
        run.run(until=500.0)
        means.append(run.statistics()["response"].mean)
    assert means[0] == means[1] != means[2]


def test_each_token_is_taken_about_equally_often() -> None:
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], range(5))
    page.place("Seen", net.scope.colours["INT"], [0])
    page.transition("Take", takes={"A": "n", "Seen": "m"}, puts={"A": "n", "Seen": "n"})
    run = simulated(net, DataCollection("taken", "Take", "n"))
    run.run(steps=20_000)
    shares = np.bincount(run.values("taken").astype(int)) / 20_000
    assert np.abs(shares - 0.2).max() < 0.02


def test_replications_need_two_runs_and_an_end_after_the_warm_up() -> None:
    net, monitors = one_server(0.5, 1.0)
    flat, rng = net.flatten(), np.random.default_rng(1)
    with pytest.raises(InvalidValue, match="replications must be between 2"):
        replicate(flat, monitors, rng, replications=1, until=10.0)
    with pytest.raises(InvalidValue, match="the warm-up of 10 s must end before the run does, at 10 s"):
        replicate(flat, monitors, rng, replications=2, until=10.0, warm_up=10.0)


def test_a_net_whose_clock_stands_still_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lavant.models.petri.simulation.INSTANT_STEPS_MAX", 100_000)
    net, page = a_page()
    page.place("A", net.scope.colours["INT"], [0])
    page.transition("Turn", takes={"A": "n"}, puts={"A": "(n + 1) % 5"})
    with pytest.raises(InvalidValue, match=r"the clock stands still at 0: .* the last of them Top'Turn"):
        simulated(net).run(until=1.0)
    assert simulated(net).run(steps=200_000) == 200_000


def test_a_timed_net_without_an_end_asks_for_one() -> None:
    net, _ = one_server(0.5, 1.0)
    with pytest.raises(InvalidValue, match="may run for ever"):
        simulated(net).run()
    assert math.isfinite(simulated(net).now)

"""The reliable queue's net: the figures of the paper's model, its promises, and mistakes that the state space finds."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from tests.bench.petri.neutral import neutral
from tests.models.order_costs import ORDER_COSTS, ORDER_COSTS_HALF_WIDTH

from lavant.core.errors import InvalidValue
from lavant.models.petri.monitors import DataCollection
from lavant.models.petri.nets.reliable_queue import (
    ReliableQueue,
    histories,
    invariants,
    monitors,
    reliable_queue,
)
from lavant.models.petri.replications import ReplicatedMean, replicate
from lavant.models.petri.simulation import Simulation
from lavant.models.petri.state_space import StateSpace, explore

SMALL: dict[str, Any] = {
    "messages": 2,
    "timeouts": 1,
    "sender_threads": 2,
    "broker_threads": 2,
    "nodes": 2,
    "replicas": 2,
}


def delivery(given: ReliableQueue, *, replications: int, until: float, seed: int = 11) -> dict[str, ReplicatedMean]:
    rng = np.random.default_rng(seed)
    flat = reliable_queue(given).flatten()
    return replicate(flat, monitors(given), rng, replications=replications, until=until, warm_up=20.0).estimates


def waiting_s(threads: int, arrivals_per_s: float, services_per_s: float) -> float:
    """M/M/n: the mean time before service starts, by Erlang's formula."""
    load = arrivals_per_s / services_per_s
    terms = [load**k / math.factorial(k) for k in range(threads)]
    last = load**threads / math.factorial(threads) * threads / (threads - load)
    return last / (sum(terms) + last) / (threads * services_per_s - arrivals_per_s)


def predicted_s(given: ReliableQueue) -> float:
    """Equation 8 with (1 - p) and Equation 9 with the timeout: 1/q attempts, and p/q timeouts."""
    q, rate = given.reliability, given.arrivals_per_s
    sending = waiting_s(given.sender_threads, rate, given.sends_per_s) + 1 / given.sends_per_s
    attempt = waiting_s(given.broker_threads, rate / q, given.forwards_per_s) + 1 / given.forwards_per_s
    return sending + attempt / q + 2 * given.link_s + (1 - q) / q * given.timeout_s


@pytest.mark.parametrize(("threads", "reliability", "expected"), [(6, 0.99, 0.20816), (4, 0.88, 0.41238)])
def test_the_prediction_is_the_one_of_the_corrected_equations(
    threads: int, reliability: float, expected: float
) -> None:
    given = ReliableQueue(sender_threads=threads, broker_threads=threads, reliability=reliability, timeout_s=1e-9)
    assert abs(predicted_s(given) - expected) < 5e-6


@pytest.mark.parametrize("given", [ReliableQueue(), ReliableQueue(reliability=0.88, link_s=0.002, timeout_s=0.05)])
def test_out_of_order_the_net_delivers_within_the_predicted_time(given: ReliableQueue) -> None:
    found = delivery(given, replications=8, until=220.0)
    latency = found["Msg_Delivery_Latency"]
    assert abs(latency.mean - predicted_s(given)) < 2 * latency.half_width
    busy = found["Busy_Broker_Threads"]
    assert abs(busy.mean - given.arrivals_per_s / given.reliability / given.forwards_per_s) < 3 * busy.half_width


def test_in_order_costs_about_half_as_much_again() -> None:
    found = delivery(ReliableQueue(order="in-order"), replications=8, until=220.0)["Msg_Delivery_Latency"]
    assert abs(found.mean - 0.33197) < 2 * found.half_width
    assert found.half_width < 0.02


@pytest.mark.soak
@pytest.mark.parametrize("threads", range(4, 11))
def test_in_order_costs_about_half_as_much_again_for_any_number_of_threads(threads: int) -> None:
    for order in ("out-of-order", "in-order"):
        given = ReliableQueue(order=order, sender_threads=threads, broker_threads=threads)
        found = delivery(given, replications=10, until=2_000.0)["Msg_Delivery_Latency"]
        exact = predicted_s(given)
        expected = exact * (ORDER_COSTS[threads] if order == "in-order" else 1.0)
        assert abs(found.mean - expected) < 1.5 * found.half_width + ORDER_COSTS_HALF_WIDTH * exact


def searched(**given: Any) -> StateSpace:
    parameters = ReliableQueue(**(SMALL | given))
    return explore(
        reliable_queue(parameters).flatten(), invariants=invariants(parameters), histories=histories(parameters)
    )


@pytest.mark.parametrize("order", ["out-of-order", "in-order"])
@pytest.mark.parametrize("timer_starts", ["sending", "processing"])
def test_the_net_keeps_its_promises_in_every_state(order: str, timer_starts: str) -> None:
    space = searched(order=order, timer_starts=timer_starts)
    assert space.is_complete
    assert space.violations == []
    assert space.dead_transitions == []
    assert space.bounds["Broker'Processing"].greatest <= 2


@pytest.mark.parametrize(
    ("order", "broken", "promise", "last"),
    [
        ("out-of-order", "loses", "no message is lost", "Broker'Get_Msg"),
        ("in-order", "loses", "no message is lost", "Broker'Get_Oldest_Msg"),
        ("out-of-order", "shares", "none is shared while its timer runs", "Broker'Get_Msg"),
        ("in-order", "shares", "none is shared while its timer runs", "Broker'Get_Oldest_Msg"),
        ("in-order", "disorders", "messages start in order", "Broker'Get_Oldest_Msg"),
    ],
)
def test_a_broken_net_is_found_with_the_trace_to_its_mistake(order: str, broken: str, promise: str, last: str) -> None:
    given = ReliableQueue(**(SMALL | {"order": order, "broken": broken}))
    space = explore(
        reliable_queue(given).flatten(),
        invariants=invariants(given),
        histories=histories(given),
        stop_at_violation=True,
    )
    assert [violation.name for violation in space.violations] == [promise]
    trace = space.violations[0].trace
    assert trace[0].transition == "Send_Proc'Produce"
    assert trace[-1].transition == last


def test_messages_leave_out_of_order_as_soon_as_nodes_hold_different_replicas() -> None:
    """With every message on every node, that leaves first which came first; with one replica each, not always."""
    for replicas, in_order in ((3, True), (1, False)):
        given = ReliableQueue(replicas=replicas, broker_threads=4, reliability=1.0)
        flat = reliable_queue(given).flatten()
        run = Simulation(flat, np.random.default_rng(3), [DataCollection("entered", "Get_Msg", "msg.IT")])
        run.run(until=60.0)
        assert bool((np.diff(run.values("entered")) >= 0).all()) is in_order


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("order", "sideways", "order must be one of in-order, out-of-order, got sideways"),
        ("reliability", 0.0, "reliability must be above 0 and at most 1, got 0.0"),
        ("sender_threads", 0, "sender_threads must be between 1 and 1000, got 0"),
        ("replicas", 4, "replicas must be between 1 and 3, the number of nodes, got 4"),
        ("timeout_s", -1.0, "timeout_s must be positive, and finite, got -1.0"),
        ("broken", "always", "broken must be one of loses, shares, disorders, got always"),
    ],
)
def test_a_parameter_out_of_range_is_refused(name: str, value: object, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        ReliableQueue(**{name: value})  # type: ignore[arg-type]


def test_the_net_can_be_given_to_engines_that_match_names_and_tuples_only() -> None:
    """The benchmark hands it to others, which know no patterns of lists."""
    given = neutral(reliable_queue(ReliableQueue()).flatten())
    patterns = [text for each in given["transitions"] for _, text in each["takes"]]
    assert all(re.fullmatch(r"v_\w+|'\w+'|\(.*\)", text) for text in patterns), patterns
    (start,) = (each for each in given["transitions"] if each["name"] == "Send_Proc'Start_Sending")
    assert (start["guard"], start["puts"][0][1]) == ("len(v_list0) > 0", "v_list0[1:]")

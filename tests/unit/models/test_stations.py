"""Single stations, against formulas in their textbook form and against printed tables."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.models.decomposition import correction, requests
from lavant.models.delay import delay_probability, delay_scv, waiting_probability, waiting_requests

loads = st.floats(0.01, 30.0)
scvs = st.floats(0.0, 5.0)
servers = st.integers(1, 40)


def equation_1(load: float, m: int) -> float:
    """L of M/M/m as the allocation paper prints it, with factorials."""
    rho = load / m
    empty = 1 / (sum(load**t / math.factorial(t) for t in range(m)) + load**m / ((1 - rho) * math.factorial(m)))
    return rho * load**m * empty / ((1 - rho) ** 2 * math.factorial(m)) + load


@given(servers, st.floats(0.01, 0.99))
def test_the_recursion_gives_equation_1(m: int, rho: float) -> None:
    assert requests(rho * m, m, 1.0, 1.0, False) == pytest.approx(equation_1(rho * m, m), rel=1e-9)


def test_many_servers_do_not_overflow() -> None:
    assert requests(950.0, 1000, 1.0, 1.0, False) == pytest.approx(950 + waiting_requests(950.0, 1000))
    assert 0 < waiting_probability(950.0, 1000) < 1


@given(loads, servers, scvs, scvs, st.booleans())
def test_what_is_not_stable_is_infinite_and_nothing_is_negative(
    load: float, m: int, arrival_scv: float, service_scv: float, refined: bool
) -> None:
    found = requests(load, m, arrival_scv, service_scv, refined)
    if load >= m:
        assert found == math.inf
    else:
        assert load <= found < math.inf


@given(st.floats(0.01, 0.99), servers)
def test_the_refinement_leaves_markovian_stations_alone(rho: float, m: int) -> None:
    assert correction(rho, m, 1.0, 1.0) == pytest.approx(1.0)


@given(st.floats(0.01, 0.99), servers)
def test_with_constant_services_the_correction_is_that_of_cosmetatos(rho: float, m: int) -> None:
    gamma = min(0.24, (1 - rho) * (m - 1) * (math.sqrt(4 + 5 * m) - 2) / (16 * m * rho))
    assert correction(rho, m, 1.0, 0.0) == pytest.approx(1 + gamma)


@given(st.floats(0.3, 0.99), servers, st.floats(0.05, 3.0))
def test_the_correction_has_no_jump_where_both_variabilities_are_equal(rho: float, m: int, scv: float) -> None:
    above, below = correction(rho, m, scv + 1e-9, scv), correction(rho, m, scv, scv + 1e-9)
    assert above == pytest.approx(below, abs=1e-5)


WHITT_1993 = [
    (4, 0.0, 1.0, 0.65), (4, 2.25, 1.0, 0.85), (4, 0.25, 1.0, 0.70), (4, 0.56, 1.0, 0.75), (4, 1.0, 0.0, 0.79),
    (4, 0.0, 2.0, 0.71), (4, 0.5, 2.0, 0.76), (4, 0.0, 9.0, 0.75), (4, 9.0, 9.0, 0.86), (4, 0.1, 0.5, 0.60),
    (20, 0.0, 1.0, 0.31), (4, 2.25, 0.0, 0.86),
]  # fmt: skip
"""Servers, ca², cs², and the approximation that Whitt's tables print, at a utilisation of 0.9."""


@pytest.mark.parametrize(("m", "arrival_scv", "service_scv", "printed"), WHITT_1993)
def test_the_probability_of_waiting_is_that_of_whitt_s_tables(
    m: int, arrival_scv: float, service_scv: float, printed: float
) -> None:
    assert delay_probability(0.9 * m, m, arrival_scv, service_scv) == pytest.approx(printed, abs=0.009)


def test_with_many_servers_and_regular_arrivals_waiting_is_as_rare_as_a_normal_count_says() -> None:
    """Whitt's π₆, in full from γ = 1 on; constant arrivals, 20 servers. On the way to it nothing jumps."""
    load = 14.0
    gamma = (20 - load - 0.5) / math.sqrt(load * 0.5)
    assert delay_probability(load, 20, 0.0, 1.0) == pytest.approx(0.5 * math.erfc(gamma / math.sqrt(2)))
    found = [delay_probability(14.0 + 0.01 * step, 20, 0.0, 1.0) for step in range(590)]
    assert all(0 < later - earlier < 0.01 for earlier, later in pairwise(found))


@given(loads, servers, scvs, scvs)
def test_a_probability_of_waiting_is_a_probability(load: float, m: int, arrival_scv: float, service_scv: float) -> None:
    assert 0 <= delay_probability(load, m, arrival_scv, service_scv) <= 1
    assert delay_scv(load / m, service_scv) >= 0


@given(st.floats(0.01, 0.999), servers)
def test_markovian_stations_wait_as_erlang_says(rho: float, m: int) -> None:
    assert delay_probability(rho * m, m, 1.0, 1.0) == pytest.approx(waiting_probability(rho * m, m))
    assert delay_scv(rho, 1.0) == pytest.approx(1.0)

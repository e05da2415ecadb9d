"""Predicted loads: equations (4.7) to (4.16), and what they leave undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.control.balancing.estimation import LoadChange, LoadPrediction, predict
from lavant.control.balancing.values import BrokerLoad
from lavant.core.errors import InvalidValue

LOAD = BrokerLoad(
    subscriptions=100,
    input_rate_per_s=10.0,
    matching_delay_s=0.02,
    output_bytes_per_s=1000.0,
    bandwidth_bytes_per_s=10_000.0,
    matcher_bytes=1000.0,
    input_queue_bytes=100.0,
    output_queue_bytes=50.0,
    memory_bytes_max=10_000.0,
)


def test_every_index_of_a_broker_that_gains_subscriptions() -> None:
    after = predict(
        LOAD, LoadChange(subscriptions=50, input_rate_per_s=10.0, output_rate_per_s=5.0), publication_bytes=200.0
    )
    assert after.subscriptions == 150
    assert after.matching_delay_s == pytest.approx(0.03)
    assert after.input_utilization == pytest.approx(20.0 * 0.03)
    assert after.cpu == pytest.approx(0.6)
    assert after.output_utilization == pytest.approx(0.2)
    assert after.matcher_bytes == pytest.approx(1500.0)
    assert after.input_queue_bytes == pytest.approx(2.0 * 1.5 * 100.0)
    assert after.output_queue_bytes == pytest.approx(100.0)
    assert after.memory_utilization == pytest.approx((1500 + 300 + 100) / 10_000)


def test_a_measured_slope_replaces_the_proportional_delay() -> None:
    load = BrokerLoad(subscriptions=100, matching_delay_s=0.02, matching_delay_slope_s=0.00001)
    assert predict(load, LoadChange(subscriptions=100), publication_bytes=0.0).matching_delay_s == pytest.approx(0.021)


def test_a_broker_without_subscriptions_input_or_output_can_be_predicted() -> None:
    after = predict(BrokerLoad(), LoadChange(subscriptions=10, input_rate_per_s=1.0), publication_bytes=100.0)
    assert (after.subscriptions, after.matching_delay_s, after.input_utilization) == (10, 0.0, 0.0)
    assert after.memory_utilization == 0.0


def test_a_broker_without_bandwidth_is_idle_or_infinitely_loaded() -> None:
    assert BrokerLoad(bandwidth_bytes_per_s=0.0).output_utilization == 0.0
    assert BrokerLoad(bandwidth_bytes_per_s=0.0, output_bytes_per_s=1.0).output_utilization == math.inf


def test_a_load_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidValue, match="input_rate_per_s of a broker must be a number from 0 on, got nan"):
        BrokerLoad(input_rate_per_s=math.nan)


@given(st.integers(-100, 500), st.floats(-10, 100), st.floats(-5, 100))
def test_a_column_of_changes_predicts_what_single_ones_do(subscriptions: int, gained: float, sent: float) -> None:
    column = LoadPrediction(LOAD, np.array([subscriptions]), np.array([gained]), np.array([sent]), 200.0)
    change = LoadChange(subscriptions=subscriptions, input_rate_per_s=gained, output_rate_per_s=sent)
    single = predict(LOAD, change, publication_bytes=200.0)
    assert float(column.input[0]) == pytest.approx(single.input_utilization)
    assert float(column.output[0]) == pytest.approx(single.output_utilization)
    assert float(column.memory[0]) == pytest.approx(single.memory_utilization)
    assert min(single.input_utilization, single.output_utilization, single.memory_utilization) >= 0

"""What `lavant top` makes of two looks at a server's figures."""

from __future__ import annotations

from lavant.cli.reports.top import MetricsSample, parse, rate, rows, server


def look(time_s: float, *, sent: dict[str, int], visible: dict[str, int], requests: int) -> MetricsSample:
    lines = [f"lavant_requests_total {requests}", "lavant_stored_bytes 2500000"]
    lines += [f'lavant_queue_sent_total{{queue="{queue}"}} {count}' for queue, count in sent.items()]
    lines += [f'lavant_queue_visible{{queue="{queue}"}} {count}' for queue, count in visible.items()]
    return parse("\n".join(["# TYPE lavant_requests counter", *lines, "# EOF"]), time_s)


def test_rates_are_differences_over_time_and_the_busiest_queue_comes_first() -> None:
    before = look(10.0, sent={"a": 5, "b": 0, "c": 0}, visible={"a": 1, "b": 9, "c": 3}, requests=100)
    after = look(12.0, sent={"a": 9, "b": 0, "c": 0}, visible={"a": 1, "b": 9, "c": 3}, requests=200)
    shown = rows(before, after)
    assert [(row["queue"], row["sent_per_s"], row["visible"]) for row in shown] == [
        ("a", 2.0, 1.0),
        ("b", 0.0, 9.0),
        ("c", 0.0, 3.0),
    ]
    assert [row["queue"] for row in rows(before, after, count=1)] == ["a"]
    assert (server(before, after)["requests_per_s"], server(before, after)["stored_mb"]) == (50.0, 2.5)


def test_a_server_that_started_anew_has_no_negative_rate() -> None:
    before = look(10.0, sent={}, visible={}, requests=1000)
    after = look(11.0, sent={}, visible={}, requests=3)
    assert rate(before, after, "lavant_requests_total") == 0.0


def test_a_label_may_hold_quotes_and_braces() -> None:
    sample = parse('lavant_queue_visible{queue="a\\"}b"} 2\n', 0.0)
    assert sample.queues() == ['a\\"}b']

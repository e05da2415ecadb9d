"""Schedules against a real server: jobs and messages come by themselves, also over kill -9, each time once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.integration.serving import Served

from lavant import Client, Workflow, connect
from lavant.broker.protocol.jobs import LeaseTasks
from lavant.client.connection.calls import Call
from lavant.core.errors import InvalidValue, Missing

WAIT_S = 30.0


def fired(client: Client, name: str) -> int:
    return next(each.fired for each in client.schedules() if each.name == name)


def until_fired(client: Client, name: str, times: int) -> None:
    end_s = time.monotonic() + WAIT_S
    while fired(client, name) < times:
        assert time.monotonic() < end_s
        time.sleep(0.05)


def bodies(client: Client, queue: str) -> list[bytes]:
    return [each.body for each in client.queue(queue).peek(1000)]


def test_each_time_makes_one_message_also_if_the_server_is_killed(tmp_path: Path) -> None:
    with Served(tmp_path) as served, connect(served.url) as client:
        client.create_queue("ticks")
        client.schedule("tick", every_s=1, queue="ticks", body={"n": 1})
        until_fired(client, "tick", 1)
        served.kill()
    time.sleep(2.5)  # two more times pass, which count as one
    with Served(tmp_path) as served, connect(served.url) as client:
        until_fired(client, "tick", 3)
        client.unschedule("tick")
        total = client.queue("ticks").describe().figures.sent
        assert bodies(client, "ticks") == [b'{"n":1}'] * total
        with pytest.raises(Missing, match="no schedule 'tick'"):
            client.unschedule("tick")


def test_a_schedule_submits_jobs_and_says_what_is_missing() -> None:
    with Served(None) as served, connect(served.url) as client:
        state = client.schedule("jobs", every_s=1, job="report", body="today")
        assert state.next_s > state.created_s
        until_fired(client, "jobs", 1)
        [found] = client.schedules()
        assert "no job type" in found.last_error
        report = Workflow("report")
        report.task("write")
        client.define_jobs(report)
        until_fired(client, "jobs", found.fired + 1)
        assert next(iter(client.schedules())).last_error == ""
        assert next(each.job_type for each in client.jobs()) == "report"
        leased = client.run(Call(LeaseTasks("write", "ann"), lambda answer: answer.tasks))
        assert leased[0].input == b"today"
        again = client.schedule("jobs", every_s=1, job="report", body="today")
        assert again.created_s == state.created_s
        for wrong in ({"cron": "x"}, {"cron": "@daily", "every_s": 1}, {"every_s": 0.5}, {}):
            with pytest.raises(InvalidValue):
                client.schedule("wrong", job="report", **wrong)

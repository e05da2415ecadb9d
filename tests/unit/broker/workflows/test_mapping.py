"""The mapping table: from a job type and a task to the tasks that follow."""

from __future__ import annotations

from tests.unit.broker.workflows.hubs import CHAIN, CHOICE

from lavant.broker.workflows import read_workflows
from lavant.broker.workflows.mapping import JobType, Row


def test_the_table_of_a_chain() -> None:
    chain = JobType(read_workflows(CHAIN).jobs[0])
    assert chain.rows() == [
        Row("chain", None, "load", ""),
        Row("chain", "load", "fit", ""),
        Row("chain", "fit", "draw", ""),
        Row("chain", "draw", None, ""),
    ]


def test_a_condition_chooses_by_the_attributes_of_the_result() -> None:
    choice = JobType(read_workflows(CHOICE).jobs[0])
    assert choice.next_of("look", {"score": 0.5}) == ["fine"]
    assert choice.next_of("look", {"score": 0.4}) == ["coarse"]
    assert choice.next_of("look", {}) == []
    assert Row("choice", "look", "coarse", "score < 0.5") in choice.rows()

"""The mapping table: from a job type and a task to the tasks that follow."""

from __future__ import annotations

from tests.unit.broker.workflows.machines import CHAIN, CHOICE

from lavant.broker.workflows.definitions.dag import DagRow, JobType
from lavant.broker.workflows.definitions.toml_file import read_workflows


def test_the_table_of_a_chain() -> None:
    chain = JobType(read_workflows(CHAIN).jobs[0])
    assert chain.rows() == [
        DagRow("chain", None, "load", ""),
        DagRow("chain", "load", "fit", ""),
        DagRow("chain", "fit", "draw", ""),
        DagRow("chain", "draw", None, ""),
    ]


def test_a_condition_chooses_by_the_attributes_of_the_result() -> None:
    choice = JobType(read_workflows(CHOICE).jobs[0])
    assert choice.next_of("look", {"score": 0.5}) == ["fine"]
    assert choice.next_of("look", {"score": 0.4}) == ["coarse"]
    assert choice.next_of("look", {}) == []
    assert DagRow("choice", "look", "coarse", "score < 0.5") in choice.rows()

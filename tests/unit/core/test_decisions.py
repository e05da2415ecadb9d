"""A decision prints what it was, why, and from which figures."""

from __future__ import annotations

from lavant.core.decisions import Decision


def test_figures_are_listed_by_name_whatever_order_they_came_in() -> None:
    decision = Decision(loop="tuning", action="wait", reason="nothing to do", figures={"b": 2.0, "a": 0.5})
    assert str(decision) == "tuning: wait, because nothing to do (a=0.5, b=2)"


def test_a_decision_without_figures_has_no_parentheses() -> None:
    assert str(Decision(loop="tuning", action="wait", reason="idle")) == "tuning: wait, because idle"


def test_two_decisions_do_not_share_their_figures() -> None:
    one, other = (Decision(loop="l", action="a", reason="r") for _ in range(2))
    assert one == other
    assert one.figures is not other.figures

"""The declarations of queue attributes, and the page that is made from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lavant.broker.protocol.queue_attributes import QUEUE_ATTRIBUTES, QueueAttribute
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.queues.validation import check_config

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "queue-attributes.md"


def reference_table() -> str:
    """The table of the page; put it there if the test fails."""
    head = "| attribute | default | range | SQS | command line | |\n| --- | --- | --- | --- | --- | --- |\n"
    return head + "".join(f"| {' | '.join(row(each))} |\n" for each in QUEUE_ATTRIBUTES)


def row(attribute: QueueAttribute) -> tuple[str, ...]:
    default = attribute.default
    shown = f"{default:,}" if attribute.type is int and default is not None else str(default)
    bounds = "" if attribute.most is None else f"{attribute.least:,} to {attribute.most:,}"
    in_seconds = " (seconds)" if attribute.sqs_unit > 1 else ""
    fixed = "; cannot be changed later" if attribute.is_fixed else ""
    names = (f"`{attribute.sqs_name}`{in_seconds}", f"`{attribute.flag}`")
    return (f"`{attribute.name}`", "none" if default in (None, {}) else shown, bounds, *names, attribute.text + fixed)


def test_the_reference_page_is_up_to_date() -> None:
    assert reference_table() in PAGE.read_text()


def test_every_field_of_a_configuration_is_declared_in_its_order() -> None:
    assert tuple(each.name for each in QUEUE_ATTRIBUTES) == QueueConfig.__struct_fields__


def test_a_new_queue_is_within_all_ranges() -> None:
    check_config(QueueConfig())


@pytest.mark.parametrize("attribute", QUEUE_ATTRIBUTES, ids=lambda each: each.name)
def test_a_declaration_fits_the_field(attribute: QueueAttribute) -> None:
    assert attribute.default is None or type(attribute.default) is attribute.type
    assert (attribute.most is not None) == (attribute.type is int)
    assert attribute.least % attribute.sqs_unit == 0
    assert (attribute.most or 0) % attribute.sqs_unit == 0

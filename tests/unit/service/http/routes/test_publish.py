"""Bodies as publications."""

from __future__ import annotations

import pytest

from lavant.broker.protocol.queues import Refused
from lavant.service.http.errors import ApiError, error_of_all
from lavant.service.http.routes.publish import publications_in

EVENT = b'{"specversion": "1.0", "id": "e", "source": "s", "type": "t"}'


def test_an_array_is_cut_into_its_elements_as_they_are() -> None:
    assert publications_in("application/json", {}, b'\n[ {"a":  1}, "x", [2] ]') == [b'{"a":  1}', b'"x"', b"[2]"]


def test_lines_are_taken_as_they_are_and_empty_ones_left_out() -> None:
    assert publications_in("application/x-ndjson", {}, b'{"a":1}\r\n \n{"b') == [b'{"a":1}\r', b'{"b']


def test_a_batch_of_events_may_be_bad_in_parts() -> None:
    good, bad = publications_in("application/cloudevents-batch+json", {}, b"[" + EVENT + b", {}]")
    assert isinstance(good, bytes)
    assert isinstance(bad, Refused)


def test_headers_of_an_event_make_any_body_its_data() -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t", "content-type": "text/csv"}
    [publication] = publications_in("text/csv", headers, b"a;b")
    assert isinstance(publication, bytes)


@pytest.mark.parametrize("kind", ["", "text/plain", "application/xml", "multipart/form-data"])
def test_other_kinds_are_not_understood(kind: str) -> None:
    with pytest.raises(ApiError) as raised:
        publications_in(kind, {}, b"{}")
    assert raised.value.status == 415


@pytest.mark.parametrize(
    ("codes", "status", "retry"),
    [
        (["InvalidValue"], 400, False),
        (["LimitExceeded", "LimitExceeded"], 413, False),
        (["LimitExceeded", "InvalidValue"], 400, False),
        (["QueueFull", "QueueFull"], 503, True),
        (["StorageFull", "QueueFull"], 503, True),
        (["QueueFull", "InvalidValue"], 400, True),
        (["Overloaded"], 429, True),
    ],
)
def test_when_all_are_refused_the_answer_says_whether_time_helps(codes: list[str], status: int, retry: bool) -> None:
    error = error_of_all([Refused(code, "because") for code in codes], too_large=413)
    assert (error.status, "Retry-After" in error.headers) == (status, retry)

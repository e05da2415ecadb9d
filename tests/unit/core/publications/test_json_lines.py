"""Lines of JSON: what is read, what is refused, and that one bad line spoils no other."""

from __future__ import annotations

import pytest

from lavant.core.errors import InvalidValue
from lavant.core.publications.batch import PublicationBatch
from lavant.core.publications.json_lines import CONTENT_LENGTH_MAX, from_json_lines, to_json_lines
from lavant.core.publications.publication import Rejected

DEEP = b"[" * 100_000
POISON = [
    (b"{", "not JSON: "),
    (b"\xff\xfe", "not JSON: "),
    (b'{"a": 1e400}', "not JSON: "),
    (b'{"a": NaN}', "not JSON: "),
    (DEEP, "not JSON: "),
    (b'{"a": ' + DEEP, "not JSON: "),
    (b"[1]", "a publication must be an object, got list"),
    (b"null", "a publication must be an object, got NoneType"),
    (b'{"a": [2]}', "attribute 'a' is of type list"),
    (b'{"a": {"b": 1}}', "attribute 'a' is of type dict"),
    (b'{"a": 9007199254740993}', "integer 9007199254740993 of attribute 'a' is beyond"),
    (b'{"a": 123456789012345678901234567890}', "integer 123456789012345678901234567890 of attribute 'a' is beyond"),
    (b'{"": 1}', "an attribute name must not be empty"),
    (b'{"@other": 1}', "attribute name '@other' starts with '@'"),
    (b'{"@id": 7}', "a publication id must be a printable string"),
    (b'{"@id": "' + b"x" * 129 + b'"}', "a publication id must be a printable string"),
    (b'{"@time_ms": 1.5}', "time_ms must be milliseconds since 1970 as an integer, got 1.5"),
    (b'{"@time_ms": -1}', "time_ms must be milliseconds since 1970 as an integer, got -1"),
    (b'{"@payload": "no base64!"}', "@payload must be base64 text, got 'no base64!'"),
    (b'{"@payload": 5}', "@payload must be base64 text, got 5"),
    (b'{"@payload": "\xc3\xa9"}', "@payload must be base64 text"),
    (b'{"a": "' + b"x" * 65_537 + b'"}', "attribute 'a' has 65537 bytes, at most 65536 are allowed"),
    (b"{" + b", ".join(b'"a%d": 1' % i for i in range(257)) + b"}", "a publication has 257 attributes"),
]


def test_lines_become_rows_with_the_types_they_have_in_json() -> None:
    batch = from_json_lines(b'{"a": 1}\n{"a": 1.0}\n{"a": true}\n{"a": "1"}\n{"a": null}\n{}')
    rows = batch.to_dicts()
    assert [type(row["a"]) for row in rows[:4]] == [int, float, bool, str]
    assert rows[4:] == [{}, {}]


def test_blank_lines_and_carriage_returns_are_passed_over() -> None:
    assert from_json_lines(b'\n  \n{"a": 1}\r\n\r\n{"a": 2}').to_dicts() == [{"a": 1}, {"a": 2}]
    assert len(from_json_lines(b"")) == 0


def test_payloads_travel_as_base64() -> None:
    batch = PublicationBatch.from_dicts([{"@payload": b"\0\xff\n", "@id": "7", "@time_ms": 5, "a": 1}])
    line = to_json_lines(batch)
    assert b'"@payload":"AP8K"' in line
    assert from_json_lines(line).to_dicts() == batch.to_dicts()


@pytest.mark.parametrize(("line", "reason"), POISON, ids=lambda part: repr(part)[:24])
def test_a_bad_line_is_an_error_with_its_number(line: bytes, reason: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        from_json_lines(b'\n{"a": 1}\n' + line + b"\n")
    assert str(refused.value).startswith(f"line 3: {reason}")


def test_all_bad_lines_are_set_aside_and_the_good_ones_between_them_kept() -> None:
    lines = [part for number, (bad, _) in enumerate(POISON) for part in (b'{"n": %d}' % number, bad, b"")]
    rejected: list[Rejected] = []
    batch = from_json_lines(b"\n".join(lines), rejected=rejected)
    assert batch.to_dicts() == [{"n": number} for number in range(len(POISON))]
    assert [each.row for each in rejected] == [3 * number + 1 for number in range(len(POISON))]
    for (bad, reason), each in zip(POISON, rejected, strict=True):
        assert each.reason.startswith(reason)
        assert each.content == bad[:CONTENT_LENGTH_MAX].decode(errors="replace")


def test_an_id_of_as_many_characters_as_allowed_spoils_no_batch() -> None:
    line = '{"@id": "' + "é" * 128 + '"}'
    assert from_json_lines(line.encode(), rejected=[]).to_dicts() == [{"@id": "é" * 128}]


def test_what_is_absent_is_not_written() -> None:
    batch = PublicationBatch.from_dicts([{"a": 1}, {"b": "x"}])
    assert to_json_lines(batch) == b'{"a":1}\n{"b":"x"}\n'

"""URIs of storage: taken apart, put together, and shown without secrets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.storage.objects.uris import decoded, encoded, parse_uri
from lavant.core.errors import InvalidValue

SECRET = "s3://KEY1:a%2Fb%40c@bucket/x?session_token=TOKEN9&region=eu&endpoint_override=me:pw7@host:9000"


def test_what_a_uri_hides_appears_in_no_message_whole_or_in_part() -> None:
    uri = parse_uri(SECRET)
    assert uri.shown == "s3://***@bucket/x?session_token=***&region=eu&endpoint_override=***@host:9000"
    for text in (
        SECRET,
        "key KEY1 is unknown",
        "a/b@c and a%2Fb%40c",
        "TOKEN9 has expired",
        "cannot reach me:pw7@host",
    ):
        shown = uri.without_secrets(f"failed: {text}")
        assert not [part for part in ("KEY1", "a/b@c", "a%2Fb%40c", "TOKEN9", "pw7") if part in shown]
    assert uri.text == SECRET


def test_short_secrets_leave_other_words_whole() -> None:
    uri = parse_uri("s3://k:s@bucket/x?endpoint_override=tmp:pass@host")
    assert uri.without_secrets(f"{uri.text}: skips kinks") == f"{uri.shown}: skips kinks"
    assert uri.without_secrets("compass, tmpfile; user=tmp, password 'pass'") == (
        "compass, tmpfile; user=***, password '***'"
    )
    assert uri.without_secrets("for tmp:pass@host") == "for ***@host"
    assert parse_uri("s3://key:secret@bucket/x").without_secrets("monkey, key and secrets: secret") == (
        "monkey, *** and secrets: ***"
    )


@given(name=st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1))
def test_any_text_survives_in_a_path(name: str) -> None:
    assert decoded(encoded(name)) == name
    below = parse_uri("s3://bucket/x?region=eu").below(name)
    assert parse_uri(below.text) == below
    assert decoded(below.path) == f"x/{name}"


@pytest.mark.parametrize(
    ("text", "path", "host"),
    [
        ("s3://bucket", "", "bucket"),
        ("S3://bucket/", "", "bucket"),
        ("hdfs:///data/x", "data/x", ""),
        ("s3://bucket/a b/é#1", "a%20b/%C3%A9%231", "bucket"),
        ("s3://bucket/a%20b%25", "a%20b%25", "bucket"),
        ("abfs://container@account.example/x", "x", "account.example"),
    ],
)
def test_a_uri_is_taken_apart(text: str, path: str, host: str) -> None:
    uri = parse_uri(text)
    assert (uri.path, uri.host) == (path, host)
    assert parse_uri(uri.text) == uri


@pytest.mark.parametrize("text", ["gs:/bucket", "s3:bucket", "s3://", "gs:///x", "s3://bucket/100%", "s3://bucket/%zz"])
def test_what_is_no_uri_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_uri(text)

"""What is text to SQS."""

from __future__ import annotations

import base64
import re

from hypothesis import given
from hypothesis import strategies as st

from lavant.service.aws.text import is_text, text_of

ALLOWED = re.compile("[\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


@given(st.text(st.characters(codec="utf-8")) | st.text("\x00\x07\x08\t\n\x0b\r\x1f \x7f\ufffd\ufffe\uffff🙂"))
def test_text_is_what_the_documentation_allows(text: str) -> None:
    assert is_text(text.encode()) == (ALLOWED.fullmatch(text) is not None)


def test_every_character_of_the_basic_plane_is_judged_rightly() -> None:
    for code in range(0x10000):
        if not 0xD800 <= code < 0xE000:
            text = chr(code)
            assert is_text(text.encode()) == (ALLOWED.fullmatch(text) is not None), hex(code)


@given(st.binary())
def test_a_body_that_is_no_text_is_given_in_base64(body: bytes) -> None:
    text, is_encoded = text_of(body)
    assert ALLOWED.fullmatch(text)
    assert (base64.b64decode(text) if is_encoded else text.encode()) == body


def test_text_stays_as_it_is() -> None:
    assert text_of("é\r\n🙂".encode()) == ("é\r\n🙂", False)
    assert text_of(b"\xff") == ("/w==", True)
    assert text_of(b"\x00") == ("AA==", True)

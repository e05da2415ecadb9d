"""Encodes publications as JSON, in requests of bounded size that may be repeated."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Publish, Published
from lavant.client.bodies import Body, body_bytes
from lavant.client.connection.calls import Call
from lavant.client.connection.errors import error_of
from lavant.core.errors import InvalidValue, LavantError, PartlyRefused
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.publication import ID, PAYLOAD, POINT, TIME, Publication, check_attributes, time_ms_of
from lavant.core.publications.trace_context import NO_TRACE, TraceContext

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher

AT_ONCE = 1000
AT_ONCE_BYTES = 4 << 20
"""The size of one request; a larger publication is a request of its own."""

Publishable: TypeAlias = Publication | Mapping[str, AttributeValue]
Result: TypeAlias = str | LavantError
"""The id of a publication, or its refusal."""

_encode = msgspec.json.Encoder().encode


def random_key(contents: Sequence[bytes]) -> str:
    """The idempotency key of a request that only this process repeats."""
    return secrets.token_hex(16)


def key_of_contents(contents: Sequence[bytes]) -> str:
    """The idempotency key of a request that another process may repeat: all its publications have ids."""
    return hashlib.sha256(b"\n".join(contents)).hexdigest()


class _Encoded(NamedTuple):
    place: int
    content: bytes
    """The part that is the same each time a publication is encoded: the row or, if it is encrypted, the id."""
    row: bytes


class Requests:
    """Turns publications into calls. Invalid publications are refused here, as the server would."""

    def __init__(
        self,
        publications: Iterable[Publishable],
        cipher: Cipher | None,
        key_of: Callable[[Sequence[bytes]], str] = random_key,
        trace: TraceContext = NO_TRACE,
    ) -> None:
        """Publications that have no trace of their own get this one."""
        self._results: list[Result | None] = []
        self._encoded: list[_Encoded] = []
        self._key_of = key_of
        self._trace = trace
        checked: list[tuple[int, Publication]] = []
        for place, each in enumerate(publications):
            try:
                if cipher is None:
                    row = _encode(_row(each, trace))
                    self._encoded.append(_Encoded(place, row, row))
                else:
                    checked.append((place, _checked(each)))
                self._results.append(None)
            except InvalidValue as error:
                self._results.append(error)
        if cipher is not None:
            self._encode_sealed(checked, cipher)

    def __iter__(self) -> Iterator[tuple[Sequence[int], Call[list[Result]]]]:
        """Yields each call with the indices of its publications."""
        some: list[_Encoded] = []
        size = 0
        for each in self._encoded:
            if some and (len(some) >= AT_ONCE or size + len(each.row) > AT_ONCE_BYTES):
                yield self._call(some)
                some, size = [], 0
            some.append(each)
            size += len(each.row)
        if some:
            yield self._call(some)

    def take(self, places: Sequence[int], results: Sequence[Result]) -> None:
        """Takes the results of a call."""
        for place, result in zip(places, results, strict=True):
            self._results[place] = result

    def ids(self) -> list[str]:
        """Returns the ids when all calls are done. Raises `PartlyRefused` if some publications were refused."""
        refused = {place: result for place, result in enumerate(self._results) if isinstance(result, LavantError)}
        if refused:
            raise PartlyRefused(refused)
        return [result for result in self._results if isinstance(result, str)]

    def _call(self, some: Sequence[_Encoded]) -> tuple[Sequence[int], Call[list[Result]]]:
        """May be repeated: the server recognises the idempotency key."""
        request = Publish([each.row for each in some], self._key_of([each.content for each in some]))
        return [each.place for each in some], Call(request, _results)

    def _encode_sealed(self, checked: Sequence[tuple[int, Publication]], cipher: Cipher) -> None:
        try:
            self._encoded += _sealed(checked, cipher, self._trace)
        except InvalidValue as error:
            if len(checked) == 1:
                self._results[checked[0][0]] = error
                return
            for each in checked:  # some publications may be valid
                self._encode_sealed([each], cipher)


def only_id(requests: Requests) -> str:
    """Returns the id of the only publication; raises its refusal."""
    try:
        return requests.ids()[0]
    except PartlyRefused as refused:
        raise refused.refused[0] from None


def with_payload(publication: Publishable, payload: Body | None) -> Publishable:
    if payload is None:
        return publication
    if isinstance(publication, Publication):
        raise InvalidValue("a Publication carries its own payload; give the payload there")
    return Publication(attributes=_attributes(publication), payload=body_bytes(payload, "a payload"))


def _checked(publication: Publishable) -> Publication:
    if isinstance(publication, Publication):
        return publication
    return Publication(attributes=_attributes(publication))


def _attributes(publication: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    if not isinstance(publication, Mapping):
        raise InvalidValue(
            f"publish takes a dict of attributes, or a Publication, got {publication!r:.80}; text and bytes go into "
            "`payload`"
        )
    return dict(publication)


def _row(publication: Publishable, trace: TraceContext) -> dict[str, Any]:
    if isinstance(publication, Publication):
        row: dict[str, Any] = {**publication.attributes}
        _add_envelope(row, publication, publication.payload, trace)
        return row
    row = _attributes(publication)
    check_attributes(row)
    return row | trace.row() if trace.parent else row


def _sealed(checked: Sequence[tuple[int, Publication]], cipher: Cipher, trace: TraceContext) -> list[_Encoded]:
    points = cipher.points([publication for _, publication in checked])
    encoded = []
    for (place, publication), point in zip(checked, points, strict=True):
        row: dict[str, Any] = {POINT: point}
        _add_envelope(row, publication, cipher.seal(publication), trace)
        encoded.append(_Encoded(place, publication.id.encode(), _encode(row)))
    return encoded


def _add_envelope(row: dict[str, Any], publication: Publication, payload: bytes | None, trace: TraceContext) -> None:
    """Leaves out an empty id and time: the server assigns them."""
    if publication.id:
        row[ID] = publication.id
    if publication.time_s:
        row[TIME] = time_ms_of(publication)
    if payload is not None:
        row[PAYLOAD] = base64.b64encode(payload).decode()
    trace = trace if publication.trace is None else publication.trace
    if trace.parent:
        row |= trace.row()


def _results(answer: Published) -> list[Result]:
    entries = answer.entries
    return [error_of(entry) if isinstance(entry, Refused) else entry for entry in entries]

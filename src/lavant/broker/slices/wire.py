"""The binary encoding of messages between slices: for links between processes, for logs, and for saved state.

The format is that of `lavant.broker.matching.container`: a header that names the type, then arrays as they are in
memory, so that decoding copies nothing. Publications of the plain scheme are an Arrow stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lavant.broker.matching import container
from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.broker.matching.interface import Matches
from lavant.broker.matching.plain.table import FilterTable
from lavant.broker.slices.values import (
    Batch,
    BatchId,
    Content,
    Matched,
    Publications,
    SliceNotification,
    SlicePublish,
    SliceSubscribe,
    SliceUnsubscribe,
)
from lavant.core.errors import CorruptSnapshot
from lavant.core.ids import PublicationId
from lavant.core.publications.batch import PublicationBatch

Meta = dict[str, Any]
Arrays = dict[str, NDArray[Any]]

FILTERS: dict[str, Any] = {"plain": FilterTable, "encrypted": EncryptedFilters}

_KINDS: dict[type, str] = {
    SliceSubscribe: "Subscribe",
    SliceUnsubscribe: "Unsubscribe",
    SlicePublish: "Publish",
    Publications: "Publications",
    Matched: "Matched",
    SliceNotification: "Notification",
}
"""Names of types in the format; independent of class names."""


def encode(content: Content) -> bytes:
    meta: Meta = {"kind": _KINDS[type(content)]}
    arrays: Arrays = {}
    match content:
        case SliceSubscribe(scheme=scheme, ids=ids, filters=filters):
            filters_meta, columns = filters.to_arrays()
            meta |= {"scheme": scheme, "filters": filters_meta}
            arrays |= {"ids": ids, **{f"filters.{name}": column for name, column in columns.items()}}
        case SliceUnsubscribe(scheme=scheme, ids=ids):
            meta |= {"scheme": scheme}
            arrays["ids"] = ids
        case SlicePublish(scheme=scheme, batch=batch):
            meta |= {"scheme": scheme}
            _put_batch(batch, meta, arrays)
        case Publications():
            _put_publications(content, meta, arrays)
        case Matched(id=id, matches=matches, publications=publications):
            meta |= {"access": id.access, "number": id.number}
            _put_matches(matches, arrays)
            if publications is not None:
                _put_publications(publications, meta, arrays)
        case SliceNotification(publications=publications, matches=matches):
            _put_matches(matches, arrays)
            _put_publications(publications, meta, arrays)
    return b"".join(container.pack(meta, arrays))


def decode(data: bytes | memoryview) -> Content:
    """The content, on arrays in `data`."""
    meta, arrays = container.unpack(memoryview(data), name="a message between slices", verify=False)
    match meta.get("kind"):
        case "Subscribe":
            columns = {name.removeprefix("filters."): a for name, a in arrays.items() if name.startswith("filters.")}
            filters = FILTERS[meta["scheme"]].from_arrays(meta["filters"], columns)
            return SliceSubscribe(meta["scheme"], arrays["ids"], filters)
        case "Unsubscribe":
            return SliceUnsubscribe(meta["scheme"], arrays["ids"])
        case "Publish":
            return SlicePublish(meta["scheme"], _batch(meta, arrays))
        case "Publications":
            return _publications(meta, arrays)
        case "Matched":
            carried = _publications(meta, arrays) if "scheme" in meta else None
            return Matched(_batch_id(meta), _matches(arrays), carried)
        case "Notification":
            return SliceNotification(_publications(meta, arrays), _matches(arrays))
        case kind:
            raise CorruptSnapshot(f"a message between slices has the unknown kind {kind!r}: another version sent it")


def _put_publications(publications: Publications, meta: Meta, arrays: Arrays) -> None:
    id = publications.id
    meta |= {"scheme": publications.scheme, "access": id.access, "number": id.number}
    _put_batch(publications.batch, meta, arrays)


def _publications(meta: Meta, arrays: Arrays) -> Publications:
    return Publications(_batch_id(meta), meta["scheme"], _batch(meta, arrays))


def _batch_id(meta: Meta) -> BatchId:
    return BatchId(meta["access"], meta["number"])


def _put_batch(batch: Batch, meta: Meta, arrays: Arrays) -> None:
    if isinstance(batch, EncryptedBatch):
        arrays["points"] = batch.points
        meta["ids"] = batch.ids
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.records.schema) as writer:
        writer.write_batch(batch.records)
    arrays["records"] = np.frombuffer(sink.getvalue(), np.uint8)


def _batch(meta: Meta, arrays: Arrays) -> Batch:
    if meta["scheme"] == "encrypted":
        ids = meta["ids"]
        return EncryptedBatch(arrays["points"], None if ids is None else tuple(map(PublicationId, ids)))
    with pa.ipc.open_stream(pa.py_buffer(arrays["records"])) as reader:
        return PublicationBatch(reader.read_next_batch())


def _put_matches(matches: Matches, arrays: Arrays) -> None:
    arrays |= {"matches.offsets": matches.offsets, "matches.ids": matches.ids}


def _matches(arrays: Arrays) -> Matches:
    return Matches(arrays["matches.offsets"], arrays["matches.ids"])

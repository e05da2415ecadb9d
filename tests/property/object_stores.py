"""Object storage for tests of what lives on it: in memory, and on a server of S3 with secrets in its URIs."""

from __future__ import annotations

from itertools import count

from pyarrow import fs
from tests.integration.object_store import BUCKET, ObjectStore

from lavant.broker.storage.objects.arrow import ArrowStorage
from lavant.broker.storage.objects.uris import encoded, parse_uri

_numbers = count()
ACCESS_KEY, SECRET_KEY = "AKIATESTKEY", "se/cret+of@tests"


def memory_storage() -> ArrowStorage:
    """A new and empty storage that is not local."""
    name = f"store-{next(_numbers)}"
    return ArrowStorage(fs._MockFileSystem(), name, parse_uri(f"mock://{name}"))


def s3_uri(server: ObjectStore, name: str, bucket: str = BUCKET) -> str:
    """A URI below a bucket, with credentials."""
    secret = encoded(SECRET_KEY).replace("/", "%2F").replace("@", "%40")
    return server.uri(name).replace(f"s3://{BUCKET}/", f"s3://{ACCESS_KEY}:{secret}@{bucket}/")

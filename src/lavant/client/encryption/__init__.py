"""ASPE: publications and range filters that a server can match without reading them."""

from lavant.client.encryption.key import Key
from lavant.client.encryption.schema import NumericAttribute, Schema

__all__ = ["Key", "NumericAttribute", "Schema"]

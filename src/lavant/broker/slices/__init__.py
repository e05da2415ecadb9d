"""Slices: the subscriptions in parts that are matched, moved and kept independently of each other."""

from lavant.broker.slices.store import SliceReader, SliceStore, slice_of

__all__ = ["SliceReader", "SliceStore", "slice_of"]

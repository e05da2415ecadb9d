"""Matches tables against subscriptions, from Python (`match`) and from SQL (`register`).

Subscriptions come from a slice store, a DataFrame or a table. The driver turns them into index files, which tasks open;
a row of the table is matched where it is, unless the index is too large for one executor.
"""

from lavant.pipeline.tables.match import match
from lavant.pipeline.tables.sql import register

__all__ = ["match", "register"]

"""Backups: a data directory as one archive, taken from a running server or a stopped one, and its restoration."""

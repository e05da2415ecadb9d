"""Placement policies: one file each, listed in `registry`."""

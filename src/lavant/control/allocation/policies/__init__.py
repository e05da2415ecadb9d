"""Allocation policies: one file each, behind one interface, listed in `registry`."""

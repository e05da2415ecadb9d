"""Balancing policies, a file each, behind one interface: `shares` (the default), `thesis` and `even-counts`."""

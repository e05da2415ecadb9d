"""Placement policies: `forecast` and `threshold` in a file each, listed in `registry` with `static`."""

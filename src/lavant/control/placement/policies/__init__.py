"""Placement policies: one file each, listed in `registry`, and the steps they are made of."""

"""Filters as sets: constraints on attributes, conjunctions of them, and the normal form."""

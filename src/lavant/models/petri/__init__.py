"""Coloured Petri nets."""

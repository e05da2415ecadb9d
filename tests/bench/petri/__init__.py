"""Coloured Petri nets: the net of the reliable queue in Lavant's engine and in those of others."""

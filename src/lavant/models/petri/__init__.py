"""Coloured Petri nets: nets with colour sets, time and hierarchy, their simulation, state space, drawing and export."""

"""A simulated disk with latency, limited space, errors, and loss of unsynced data."""

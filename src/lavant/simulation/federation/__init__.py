"""Brokers of a federation in virtual time: nodes, the transport between them, clients, and the central oracle."""

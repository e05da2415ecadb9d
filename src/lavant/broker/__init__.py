"""The data plane, pure: no clock, no randomness, no sockets, no logging. Time and randomness come in as arguments."""

"""`lavant bench`: quick figures of one's own machine and server. `make bench` has the thorough ones."""

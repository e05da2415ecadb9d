"""The stream driver: micro-batches of a log through access, match and exit into a sink."""

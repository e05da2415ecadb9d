"""One driver for streams: micro-batches of a log through access, match and exit into a sink."""

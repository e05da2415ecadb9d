"""The matcher for plaintext filters: an index with the same results as trying every filter."""

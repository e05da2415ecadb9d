"""Controllers of a publisher: how large its batches are, and how many transfers may be in flight."""

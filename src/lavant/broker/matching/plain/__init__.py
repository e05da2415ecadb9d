"""The matcher for plaintext filters: an index that never differs from trying every filter, only sooner done."""

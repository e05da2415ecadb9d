"""Matching of encrypted range filters (ASPE): the server compares, and never sees what it compares."""

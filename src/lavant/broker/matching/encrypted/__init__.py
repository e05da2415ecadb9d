"""Matching of encrypted range filters (ASPE): the server compares values without seeing them."""

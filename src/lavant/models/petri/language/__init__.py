"""The language of inscriptions: colour sets, typed expressions, and their translation to Python and CPN ML."""

"""Publications: attributes and their checks, single publications, and batches by row or by column."""

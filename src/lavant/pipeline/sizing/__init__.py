"""How many hosts a load needs, and what they do with it: arithmetic on measured constants."""

"""The language in which subscribers say what they want."""

"""The filter language as text: tokens, two syntaxes, the syntax tree, and the printer."""

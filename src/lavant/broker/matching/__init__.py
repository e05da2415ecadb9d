"""The engines that find who wants a publication: one interface, three matchers."""

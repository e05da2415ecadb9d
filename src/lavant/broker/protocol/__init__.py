"""Every command, query and answer of a broker, and the frames that carry them: the wire's and the journal's format."""

"""What programs give to a client and get from it: the values of the protocol, with times in seconds.

Each class mirrors the one of the same name in `lavant.broker.protocol` or `lavant.control.publishing`, field by field;
`mirror` converts between both. The rest of the client works with the protocol's values.
"""

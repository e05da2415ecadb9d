"""Commands of operators: serve, config, keys, doctor, top."""

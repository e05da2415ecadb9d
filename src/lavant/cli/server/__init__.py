"""Commands for operators: serve, config, keys, check, doctor, top, warm-up."""

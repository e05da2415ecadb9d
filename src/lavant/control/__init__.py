"""The control plane, pure: measurements and the time come in, decisions with their reasons leave."""

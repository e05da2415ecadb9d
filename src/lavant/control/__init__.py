"""The control plane, pure: measurements and the time go in, decisions with their reasons come out."""

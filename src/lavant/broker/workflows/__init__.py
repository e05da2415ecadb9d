"""Jobs as workflows over topics: which task follows which, and every job carried through to its one end."""

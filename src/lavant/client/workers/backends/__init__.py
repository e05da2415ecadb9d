"""Where the tasks of workers come from, and where their reports go: one file each."""

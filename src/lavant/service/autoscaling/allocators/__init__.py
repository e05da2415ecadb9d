"""What starts and stops consumers: one file each, one interface."""

"""The reliable queue simulated: scenarios of `lavant.models.reliable_queue` with Lavant's own queue machine."""

"""Jobs in virtual time: the real server on a simulated host, workers that crash, hang and repeat themselves.

What they were told is watched, and the jobs are looked at from inside.

The scenario `workflows` puts them together, with faults.
"""

"""Jobs in virtual time: the real server on a simulated host, and workers that crash, hang and repeat themselves.

Their answers are watched, and the jobs are inspected from inside. The scenario `workflows` combines them, with faults.
"""

"""Workers: processes that lease the tasks of jobs, run functions for them, and report the results."""

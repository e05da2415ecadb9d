"""Workers: processes that lease the tasks of jobs, have functions do them, and report what they made."""

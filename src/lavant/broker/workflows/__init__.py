"""Jobs as workflows over topics: definitions, execution, job store, timers.

Commands about jobs and tasks come in; task messages in the queues of topics, assignments for workers and job views
leave. Every job is carried to exactly one end.
"""

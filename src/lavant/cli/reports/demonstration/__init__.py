"""`lavant demo`: the service with publishers and subscribers, and the pipeline on Spark."""

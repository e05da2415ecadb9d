"""The resource manager: measures jobs, decides how many consumers each topic gets, starts and stops them.

    broker ──events──► monitor ──estimates──► scheduler ──now──► control.allocation ──plan──► allocator ──► workers

P. Nguyen, K. Nahrstedt, "Resource Management for Elastic Publish Subscribe Systems", Section II: resource monitor,
resource scheduler and resource allocator.
"""

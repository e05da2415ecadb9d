"""The HTTP interface: REST routes, streams, and their OpenAPI description.

HTTP requests come in; requests to the broker leave, through authorization. `routes/operations.py` lists all routes.
"""

"""The routes of the HTTP interface, one file for each resource, and the table that lists them."""

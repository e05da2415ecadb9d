"""The durable broker: requests come in; records for the journal, and replies once they are durable, leave.

A bug in a query, any exception that is no `LavantError`, is answered with an internal error and reported as a
`Mistake`, since a query changes nothing. A bug in anything else propagates to the caller: the state may be half
changed, and must not be used. Letting time pass before a query is not part of the query.

A receive without messages changes nothing and is not recorded. If it may wait, it becomes a long poll, and is applied
when a message is visible; leases of tasks too. The oldest poll is served first. Messages that were leased to a client
that is gone are released, as if they had never been leased.

The server itself unsubscribes temporary subscriptions whose clients are silent (`leases`).

Schedules that are due fire by a command of their own, which is recorded like one of a client.
"""

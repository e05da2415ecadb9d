"""Subscriptions on a server, as clients use them: what is asked, what comes, and how it is taken in and handled."""

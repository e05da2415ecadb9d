"""How messages of subscriptions leave the server: one module or package for each delivery kind.

    subscription ──► queue ──┬──► queue       consumers ask for messages and acknowledge them
                             ├──► stream      a connected consumer is sent messages, within a prefetch window
                             └──► webhooks    the server posts messages to an address

Subscriptions that come and go enter; receives, acknowledgements and releases for the broker leave, and posts.
`DeliveryKind` is the interface, `KINDS` the registry. To add a kind, write it and enter it there.
"""

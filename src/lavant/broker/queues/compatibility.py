"""Versions of the hub's behaviour: a change of what a command does must not change what old journals mean.

A journal holds commands, not their effects. So a command that does something else from now on would, in the replay of
what was written before, hand out other messages and other numbers than it did then, and the records behind it would no
longer fit. Therefore a server says in its `Open` by which rules it goes on, snapshots keep them, and a replay follows
the rules that held when a record was written.

| rules | since then |
| --- | --- |
| 0 | as it was before there were rules |
| 1 | a purge forgets the deduplication names; a group of an in-order queue whose message was given back, or whose lease
      ran out, goes behind the groups that can be received from at that time |

To change what a command does: raise `RULES`, add a row, and ask `Counters.rules` where the behaviour differs. A new
command or a new field with a default needs no new rules.
"""

from __future__ import annotations

from lavant.core.errors import InvalidValue

RULES = 1
"""Those of this version."""
PURGE_FORGETS_NAMES = 1
GROUPS_TAKE_TURNS = 1


def check_rules(rules: int) -> None:
    """Raises if a later version has written the journal: what its commands do is not known here."""
    if not 0 <= rules <= RULES:
        raise InvalidValue(
            f"the journal was written by rules {rules}, and this version knows those up to {RULES}; "
            "start the version that wrote it, or a later one"
        )

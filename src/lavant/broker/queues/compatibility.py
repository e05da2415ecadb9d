"""Versions of the machine's rules: a change of what a command does must not change what old journals mean.

A journal holds commands, not their effects. If a command did something else from now on, replaying older records would
hand out other messages and numbers than it did then, and later records would no longer fit. So a server names its rules
in `Open`, snapshots keep them, and replay follows the rules in force when each record was written.

| rules | change |
| --- | --- |
| 0 | before rules had versions |
| 1 | a purge forgets the deduplication names; a group of an in-order queue whose message was given back, or whose lease
      ran out, goes behind the groups that can be received from at that time |
| 2 | when a link to a neighbouring broker begins, the numbers of publications rise with the clock |

To change what a command does: raise `RULES`, add a row, and check `QueueCounters.rules` where the behaviour differs. A
new command needs no new rules: an older version refuses its name. A new field does, unless an older version may ignore
it: replay drops fields at the end that it does not know, because requests of newer clients have such fields too. A
test compares all fields with those that are noted for this version.
"""

from __future__ import annotations

from lavant.core.errors import InvalidValue, NewerFormat

RULES = 2
"""The rules of this version."""
PURGE_FORGETS_NAMES = 1
GROUPS_TAKE_TURNS = 1
NUMBERS_RISE_WITH_LINKS = 2


def check_rules(rules: int) -> None:
    """Raises if a later version wrote the journal, whose commands this one may not know."""
    if rules < 0:
        raise InvalidValue(f"rules are numbers from 0 on, got {rules}")
    if rules > RULES:
        raise NewerFormat(
            f"the journal was written with rules {rules}, and this version of Lavant knows those up to {RULES}; "
            "use the version that wrote it, or a later one"
        )

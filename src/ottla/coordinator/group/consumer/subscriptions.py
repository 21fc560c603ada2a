"""What a group subscribes to after one member has come, changed or gone, before that is in the log.

Counts are those of the group's own counters with the member's old part taken away and its new part added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import NamedTuple

from ottla.assign.server import SubscriptionType
from ottla.coordinator.group.consumer.group import ConsumerGroup, Resolved, take_away
from ottla.coordinator.group.consumer.member import Member


class Subscriptions(NamedTuple):
    """How many members subscribe to a topic by name, how many regular expressions match it, who uses which of these."""

    by_name: Mapping[str, int]
    by_regex: Mapping[str, int]
    regex_members: Mapping[str, int]

    def topics(self) -> frozenset[str]:
        """All names that are subscribed to."""
        return frozenset(self.by_name) | frozenset(self.by_regex)

    def kind(self, members: int) -> SubscriptionType:
        """Whether all of the group's `members` subscribe to the same topics."""
        if not self.regex_members:
            same = set(self.by_name.values()) <= {members} and not (self.by_regex.keys() - self.by_name.keys())
        else:
            same = (
                next(iter(self.regex_members.values())) == members
                and not self.by_name
                and all(count == 1 for count in self.by_regex.values())
            )
        return SubscriptionType.HOMOGENEOUS if same else SubscriptionType.HETEROGENEOUS


def after(group: ConsumerGroup, gone: Iterable[Member], come: Iterable[Member] = ()) -> Subscriptions:
    """The subscriptions without the members `gone` and with those that `come`.

    A regular expression that nobody uses any more matches nothing any more.
    """
    by_name, by_regex = Counter(group.by_name), Counter(group.by_regex)
    regex_members = Counter(group.regex_members)
    for before, now in zip_longest(gone, come):
        old = frozenset() if before is None else before.topic_names
        new = frozenset() if now is None else now.topic_names
        take_away(by_name, old - new)
        by_name.update(new - old)
        take_away(regex_members, _regex(before))
        regex_members.update(_regex(now))
    for regex in group.regexes.keys() - regex_members.keys():
        take_away(by_regex, group.regexes[regex].topics)
    return Subscriptions(by_name, by_regex, regex_members)


def _regex(member: Member | None) -> tuple[str, ...]:
    return (member.topic_regex,) if member is not None and member.topic_regex else ()


def topic_names(member: Member, regexes: Mapping[str, Resolved]) -> frozenset[str]:
    """What one member subscribes to; a regular expression that is not resolved yet matches nothing."""
    if not member.topic_regex or member.topic_regex not in regexes:
        return member.topic_names
    if not member.topic_names:
        return regexes[member.topic_regex].topics
    return member.topic_names | regexes[member.topic_regex].topics

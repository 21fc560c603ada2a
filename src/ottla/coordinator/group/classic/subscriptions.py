"""What the members of a classic group of consumers subscribe to, read when each of them joins.

A generation needs the topics of all its members, which may have megabytes of names together. So each member's names are
read with its own JoinGroup, and those of members that subscribe to the same are kept once. Of names that are too many
to be kept, or to be read in one turn of the event loop, it is said that they cannot be known.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.base.limits import MAX_GROUP_TOPICS, MAX_REQUEST_ELEMENTS
from ottla.wire.schema import Field, declare, decode

#: A longer subscription is not looked for among those that were just read: that would hash it.
_COMPARED_BYTES: Final = 65_536


class _Said(NamedTuple):
    """The beginning of a ConsumerProtocolSubscription: user data, which may be long, is not copied."""

    topics: tuple[str, ...] = ()


declare(_Said, (Field("topics", ["string"]),))


class Subscriptions:
    """See the module. Copies of a group's members share one: it says of bytes what they mean."""

    def __init__(self) -> None:
        #: By member id: what it has sent, one for each of its protocols, and the topics there.
        self._by_member: dict[str, tuple[tuple[bytes, frozenset[str]], ...]] = {}
        #: All such topics, each set once, and how often it is kept.
        self._kept: dict[frozenset[str], tuple[frozenset[str], int]] = {}
        #: How many names these are together.
        self._names = 0

    def note(self, member_id: str, sent: Iterable[bytes]) -> None:
        """A member joins: read its topics, as far as a turn of the loop allows."""
        before = self._by_member.get(member_id, ())
        noted: list[tuple[bytes, frozenset[str]]] = []
        left = MAX_REQUEST_ELEMENTS
        for each in sent:
            topics = next((known for metadata, known in before if metadata == each), None)
            if topics is None:
                topics = read(each, left)
                left -= 0 if topics is None else len(topics)
            if topics is None or self._names + len(topics) > MAX_GROUP_TOPICS:
                break
            noted.append((each, self._keep(topics)))
        self.forget(member_id)
        self._by_member[member_id] = tuple(noted)

    def forget(self, member_id: str) -> None:
        """The member is gone."""
        for _, topics in self._by_member.pop(member_id, ()):
            one, times = self._kept[topics]
            if times > 1:
                self._kept[one] = one, times - 1
            else:
                del self._kept[one]
                self._names -= len(one)

    def all_of(self, members: Iterable[Iterable[tuple[str, bytes]]]) -> Generator[None, None, frozenset[str] | None]:
        """The topics of these members and what they have sent; None where one cannot be read, or they are very many.

        What was not noted is read now, the same bytes once. Some members are looked at in each step.
        """
        found: dict[int, frozenset[str]] = {}
        just_read: dict[bytes, frozenset[str]] = {}
        left = names = MAX_GROUP_TOPICS
        for some in members:
            for member_id, sent in some:
                topics = self._noted(member_id, sent)
                may_compare = topics is None and len(sent) <= _COMPARED_BYTES
                if may_compare:
                    topics = just_read.get(sent)
                if topics is None:
                    topics = read(sent, min(left, MAX_REQUEST_ELEMENTS))
                    if topics is None:
                        return None
                    left -= len(topics)
                    if may_compare:
                        just_read[sent] = topics
                if id(topics) not in found:
                    found[id(topics)] = topics
                    names -= len(topics)
                if names < 0:
                    return None
            yield
        return frozenset().union(*found.values())

    def _noted(self, member_id: str, sent: bytes) -> frozenset[str] | None:
        for metadata, topics in self._by_member.get(member_id, ()):
            if metadata is sent:
                return topics
        return None

    def _keep(self, topics: frozenset[str]) -> frozenset[str]:
        one, times = self._kept.get(topics, (topics, 0))
        self._kept[one] = one, times + 1
        if not times:
            self._names += len(one)
        return one


def read(metadata: bytes, max_names: int) -> frozenset[str] | None:
    """The topics of a subscription, which is read as version 0: every later version extends it. None if it has more
    than `max_names` of them, or cannot be read."""
    try:
        return frozenset(decode(_Said, 0, metadata, 2, exact=False, max_elements=max_names).topics)
    except CorruptDataError:
        return None

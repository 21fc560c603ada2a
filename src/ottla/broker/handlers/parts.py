"""A request of very many partitions or names is carried out in parts, and others are served between two of them.

That is for APIs whose answer says of each of them what became of it, whatever became of the others.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

#: Partitions of one part, and topics without any: an offset that is committed takes some ten microseconds of the event
#: loop, a name that is refused fifteen.
PART_PARTITIONS: Final = 500
#: Topics of one part. With an authorizer each is a decision, and perhaps a line of the audit log: up to thirty
#: microseconds.
PART_TOPICS: Final = 200
#: The fewest bytes that one more partition, or one more topic without any, takes in a request.
_LEAST_BYTES: Final = 3
#: Groups, keys or ids of one part: one that is looked up takes up to a hundred microseconds.
PART_NAMES: Final = 100
#: Groups that are deleted in one part: each has a tombstone for every partition of which it has an offset.
PART_DELETED_GROUPS: Final = 10
#: Groups whose offsets are told in one part: each may have one for every partition of the cluster.
PART_OFFSET_GROUPS: Final = 10


class Names(NamedTuple):
    """Where a request has its names (or what has one), and where its answer says what became of each."""

    asked: str
    told: str
    #: A name that is there twice is answered once.
    are_distinct: bool = False
    #: So many are carried out in one part.
    at_once: int = PART_NAMES
    #: The same where there are more: each may be a group with all its members, and the answer gigabytes.
    are_distinct_if_many: bool = False

    def distinct(self, request: Any) -> Any:
        """The request without what it names again, where that is answered once."""
        names = getattr(request, self.asked)
        if not (self.are_distinct or (self.are_distinct_if_many and len(names) > self.at_once)):
            return request
        return request._replace(**{self.asked: tuple(dict.fromkeys(names))})

    def parts_of(self, request: Any) -> "Sequence[Part]":
        """The request in parts, each a request of its own; none when it need not be cut."""
        names = getattr(request, self.asked)
        if len(names) <= self.at_once:
            return ()
        cuts = range(0, len(names), self.at_once)
        return [Part(request._replace(**{self.asked: names[cut : cut + self.at_once]}), False) for cut in cuts]

    def joined(self, answers: Sequence[Any]) -> Any:
        """The answers to the parts as one. One that refuses its request as a whole is the answer to all."""
        told: list[Any] = []
        for answer in answers:
            if getattr(answer, "error_code", 0):
                return answer
            told += getattr(answer, self.told)
        return answers[0]._replace(**{self.told: tuple(told)})


class Part(NamedTuple):
    """A part of a request."""

    request: Any
    #: Whether its first topic is the last one of the part before, gone on with.
    goes_on: bool


def parts_of(request: Any, size_bytes: int) -> Sequence[Part]:
    """The request in parts, each a request of its own; none when it need not be cut.

    `size_bytes` is its size on the wire. Its topics are `topics`, and their partitions `partitions`.
    """
    if size_bytes <= PART_TOPICS * _LEAST_BYTES or not are_many(request.topics, "partitions"):
        return ()
    return [Part(request._replace(topics=topics), goes_on) for topics, goes_on in cut(request.topics, "partitions")]


def joined(parts: Sequence[Part], answers: Sequence[Any]) -> Any:
    """The answers to the parts as one. One that refuses its request as a whole is the answer to all."""
    topics: list[Any] = []
    for part, answer in zip(parts, answers, strict=True):
        if getattr(answer, "error_code", 0):
            return answer
        more = answer.topics
        if part.goes_on and topics and more and _name(topics[-1]) == _name(more[0]):
            topics[-1] = more[0]._replace(partitions=topics[-1].partitions + more[0].partitions)
            more = more[1:]
        topics += more
    return answers[0]._replace(topics=tuple(topics))


def _name(topic: Any) -> Any:
    """Everything but its partitions."""
    return topic._replace(partitions=())


def are_many(topics: Sequence[Any], field: str) -> bool:
    """Whether these are more than one part has."""
    return len(topics) > PART_TOPICS or weight(topics, field) > PART_PARTITIONS


def weight(topics: Iterable[Any], field: str) -> int:
    """How many partitions these are; a topic without any counts as one, for its name is looked at, too."""
    return sum(max(1, len(getattr(topic, field))) for topic in topics)


def cut(topics: Sequence[Any], field: str) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Topics in parts, and whether a part's first topic is the last one of the part before, gone on with.

    `field` is the one that has a topic's partitions.
    """
    part: list[Any] = []
    room, goes_on = PART_PARTITIONS, False
    for each in topics:
        if len(part) == PART_TOPICS:
            yield tuple(part), goes_on
            part, room, goes_on = [], PART_PARTITIONS, False
        topic, rest = each, getattr(each, field)
        while max(1, len(rest)) > room:
            if room:
                part.append(topic._replace(**{field: rest[:room]}))
            yield tuple(part), goes_on
            part, rest, room, goes_on = [], rest[room:], PART_PARTITIONS, room > 0
            topic = topic._replace(**{field: rest})
        part.append(topic)
        room -= max(1, len(rest))
    yield tuple(part), goes_on

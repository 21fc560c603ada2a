"""A request of very many partitions is carried out in parts, and others are served between two of them.

That is for APIs whose answer says of each partition what became of it, whatever became of the others.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

#: Partitions of one part: an offset that is committed takes some ten microseconds of the event loop.
PART_PARTITIONS: Final = 500
#: The fewest bytes that one more partition takes in a request (its number).
_PARTITION_BYTES: Final = 4


def parts_of(request: Any, size_bytes: int) -> Sequence[Any]:
    """The request in parts, each a request of its own; just the request when one part is enough.

    `size_bytes` is its size on the wire. Its topics are `topics`, and their partitions `partitions`.
    """
    if size_bytes <= PART_PARTITIONS * _PARTITION_BYTES:
        return (request,)
    if sum(len(topic.partitions) for topic in request.topics) <= PART_PARTITIONS:
        return (request,)
    return [request._replace(topics=topics) for topics in _cut(request.topics)]


def joined(answers: Sequence[Any]) -> Any:
    """The answers to the parts as one. One that refuses its request as a whole is the answer to all."""
    topics: list[Any] = []
    for answer in answers:
        if getattr(answer, "error_code", 0):
            return answer
        more = answer.topics
        if topics and more and topics[-1]._replace(partitions=()) == more[0]._replace(partitions=()):
            topics[-1] = more[0]._replace(partitions=topics[-1].partitions + more[0].partitions)
            more = more[1:]
        topics += more
    return answers[0]._replace(topics=tuple(topics))


def _cut(topics: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    part: list[Any] = []
    room = PART_PARTITIONS
    for topic in topics:
        rest = topic.partitions
        while len(rest) > room:
            if room:
                part.append(topic._replace(partitions=rest[:room]))
            yield tuple(part)
            part, rest, room = [], rest[room:], PART_PARTITIONS
        part.append(topic._replace(partitions=rest))
        room -= len(rest)
    yield tuple(part)

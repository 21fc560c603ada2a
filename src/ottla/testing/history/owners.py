"""The checker of assignments: two-owners."""

from collections.abc import Iterator

from ottla.base.types import TopicPartition
from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.evidence import Evidence
from ottla.testing.history.facts import Assigned


def two_owners(evidence: Evidence) -> Iterator[Anomaly]:
    """Two members were given a partition in the same generation (or member epoch, KIP-848).

    Excused: a static member that comes back as another client; clients that do not tell the generation. That a
    member of an older generation goes on for a while, because it has not heard of its expulsion, is no anomaly; its
    commits are refused.
    """
    owner: dict[tuple[str, int, TopicPartition], tuple[str, str]] = {}
    for event in evidence.events:
        if isinstance(event.fact, Assigned) and event.fact.generation >= 0:
            told = event.fact
            member = told.instance_id or event.who
            for tp in told.partitions:
                other, who = owner.setdefault((told.group, told.generation, tp), (member, event.who))
                if other != member:
                    text = f"{told.group}: {tp} belongs to {who} and to {event.who} in generation {told.generation}"
                    yield Anomaly("two-owners", text, (who, event.who))

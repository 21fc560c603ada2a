"""What happens to a group: each event takes a crew that works, and leaves one that works."""

from __future__ import annotations

from collections.abc import Callable

from tests.interop.matrix.clients import can_mix, has
from tests.interop.matrix.crew import SESSION_MS, Crew

Event = Callable[[Crew], None]


def members_join(crew: Crew) -> None:
    """The first, then one beside it."""
    crew.join()
    crew.works()
    crew.join()
    crew.works()


def strategy_changes(crew: Crew) -> None:
    """By rolling restarts: one that adds the new strategy, one that removes the old; a coordinator's needs only one.

    From eager to cooperative, clients that cannot offer both at once all stop, and start again.
    """
    old, new = crew.strategy, crew.next_strategy
    if "cooperative-sticky" in (old, new) and not all(map(can_mix, crew.clients)):
        crew.strategy = new
        crew.start_again()
    else:
        for chosen in (f"{new},{old}", new) if crew.protocol == "classic" else (new,):
            crew.strategy = chosen
            for member in list(crew.members):
                crew.bounce(member)
    crew.works()


def leader_leaves(crew: Crew) -> None:
    """The member that is longest there, after another has joined."""
    crew.join()
    crew.works()
    crew.leave(crew.members[0])
    crew.works()


def member_crashes(crew: Crew) -> None:
    """kill -9 of one that has just read and committed; its partitions go to the others."""
    victim = crew.join()
    crew.works()
    crew.kill(victim)
    crew.works()


def static_member_restarts(crew: Crew) -> None:
    """It comes back to what it had, and nobody else is told anything. Then it stops and is removed."""
    crew.let_sessions_last(60_000)
    first = crew.join(instance="static")
    crew.works()
    had, others = first.owned, [member for member in crew.members if member is not first]
    told = [member.times_told() for member in others]
    again = crew.prepare(first.client, instance="static")
    crew.leave(first)
    crew.go(again)
    crew.works()
    assert again.owned == had
    assert [member.times_told() for member in others] == told
    crew.leave(again)
    crew.remove("static")
    crew.let_sessions_last(SESSION_MS)
    crew.works()


def topic_appears(crew: Crew) -> None:
    """One that the members' pattern matches."""
    crew.add_topic(2)
    crew.works()


def partitions_are_added(crew: Crew) -> None:
    """To a topic that the group reads."""
    crew.add_partitions(2)
    crew.works()


def coordinator_crashes(crew: Crew) -> None:
    """kill -9, with records on their way; Apache Kafka is stopped in order. The members find it again."""
    crew.produce()
    (crew.node.kill if crew.node.name == "ottla" else crew.node.stop)()
    crew.node.start()
    crew.works()


def protocol_changes(crew: Crew) -> None:
    """Member by member, from the classic protocol to the consumer protocol (KIP-848), or back: those that have both.

    A group that librdkafka leads with cooperative-sticky cannot change as it runs: its assignments carry user data, and
    then Apache Kafka, as we, refuses the change (KAFKA-18134). So all its members stop, and start again.
    """
    at_once = crew.strategy == "cooperative-sticky" and "confluent-kafka" in crew.clients
    crew.protocol = "classic" if crew.protocol == "consumer" else "consumer"
    crew.strategy = "range" if crew.protocol == "classic" else "uniform"
    changing = [member for member in crew.members if has(member.client, "consumer")]
    if at_once and changing == crew.members:
        crew.start_again(in_another_protocol=True)
        crew.works()
        return
    for member in changing if not at_once else ():
        crew.bounce(member)
        crew.works()


#: In the order in which they happen.
ALL: tuple[Event, ...] = (
    members_join,
    strategy_changes,
    leader_leaves,
    member_crashes,
    partitions_are_added,
    topic_appears,
    static_member_restarts,
    coordinator_crashes,
    protocol_changes,
)
SHORT: tuple[Event, ...] = (members_join, member_crashes, coordinator_crashes)

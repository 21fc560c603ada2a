"""Between assignors and the wire: subscriptions and assignments in the bytes of the group protocol.

An assignor may be the user's code. Whatever it raises, even SystemExit, becomes an AssignorError, and so does whatever
it returns that is no assignment. It does not end the client.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.assign import (
    Assignment,
    Assignor,
    BaseAssignor,
    Cluster,
    PartitionInfo,
    RebalanceProtocol,
    Subscription,
    find,
)
from ottla.assign.checking import InvalidAssignmentError, check, user_data_of
from ottla.assign.cooperative import held_back
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.metadata import ClusterSnapshot
from ottla.client.errors import AssignorError
from ottla.wire.codec import WireError
from ottla.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from ottla.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember
from ottla.wire.messages.sync_group import SyncGroupRequestAssignment

T = TypeVar("T")


def assignors(strategy: Sequence[object]) -> list[Assignor]:
    """The assignors of `partition.assignment.strategy`: names, classes or instances. Raises ConfigError."""
    found: list[Assignor] = []
    for given in strategy:
        made = find(given) if isinstance(given, str) else _made(given) if isinstance(given, type) else given
        if not isinstance(made, (BaseAssignor, Assignor)):
            raise ConfigError(f"Invalid value {given!r} for configuration partition.assignment.strategy: no assignor")
        if not isinstance(made.name, str) or not made.name:
            raise ConfigError(
                f"Invalid value {given!r} for configuration partition.assignment.strategy: an assignor needs a name, "
                f"a text that is not empty, and its name is {made.name!r}"
            )
        found.append(made)
    names = [assignor.name for assignor in found]
    if len(set(names)) != len(names):
        raise ConfigError(f"partition.assignment.strategy names an assignor twice: {', '.join(names)}")
    return found


def _made(kind: type) -> object:
    try:
        made: object = kind()
    except Exception as error:
        raise ConfigError(
            f"Invalid value {kind!r} for configuration partition.assignment.strategy: it cannot be made without "
            f"arguments ({error}): give an object of it"
        ) from error
    return made


def rebalance_protocol(chosen: Iterable[Assignor]) -> RebalanceProtocol:
    """The highest rebalance protocol that all assignors support (KIP-429). Raises ConfigError."""
    common = set(RebalanceProtocol)
    for assignor in chosen:
        common &= set(assignor.protocols)
    if not common:
        raise ConfigError("partition.assignment.strategy: choose assignors that have a rebalance protocol in common")
    return max(common)


def subscription_protocols(
    chosen: Iterable[Assignor],
    topics: frozenset[str],
    owned: Iterable[TopicPartition],
    generation_id: int,
    rack: str | None,
) -> tuple[JoinGroupRequestProtocol, ...]:
    """This member's subscription for JoinGroup, once for each assignor, the preferred one first (SPEC A8).

    Raises AssignorError.
    """
    by_topic = _by_topic(owned)

    def say(assignor: Assignor) -> bytes:
        return encode_subscription(
            ConsumerProtocolSubscription(
                tuple(sorted(topics)),
                user_data_of(assignor, topics),
                tuple(OwnedTopic(name, ps) for name, ps in by_topic.items()),
                generation_id,
                rack,
            )
        )

    return tuple(
        JoinGroupRequestProtocol(a.name, _guarded(a, "subscription_user_data()", lambda a=a: say(a)))  # type: ignore[misc]
        for a in chosen
    )


def read_subscriptions(members: Iterable[JoinGroupResponseMember]) -> dict[str, Subscription]:
    """The subscriptions of all members, from JoinGroup's answer to the leader.

    WireError, with the member's id, where one cannot be read: kafka-go's ends before a field that its version has.
    """
    found = {}
    for member in members:
        try:
            said = decode_subscription(member.metadata)
        except WireError as fault:
            raise WireError(f"the subscription of the group's member {member.member_id}: {fault}") from None
        found[member.member_id] = Subscription(
            topics=said.topics,
            user_data=said.user_data,
            owned_partitions=tuple(TopicPartition(t.topic, p) for t in said.owned_partitions for p in t.partitions),
            generation_id=said.generation_id,
            rack_id=said.rack_id,
            group_instance_id=member.group_instance_id,
        )
    return found


class Division(NamedTuple):
    """What a leader has decided: the assignments of all members, and whether a partition is held back that its owner
    has to give up first (KIP-429)."""

    assignments: tuple[SyncGroupRequestAssignment, ...]
    holds_back: bool


def assign_all(
    assignor: Assignor,
    snapshot: ClusterSnapshot,
    subscriptions: Mapping[str, Subscription],
    protocol: RebalanceProtocol = RebalanceProtocol.EAGER,
) -> Division:
    """The work of a leader that uses the rebalance `protocol`. Raises AssignorError."""
    topics = {
        name: tuple(
            PartitionInfo(number, tuple(filter(None, (_rack(snapshot, replica) for replica in info.replicas))))
            for number, info in sorted(topic.partitions.items())
        )
        for name, topic in snapshot.topics.items()
    }

    def divide() -> Division:
        answer = assignor.assign(Cluster(topics), subscriptions)
        assigned = check(assignor, Cluster(topics), subscriptions, answer, protocol)
        encoded = tuple(SyncGroupRequestAssignment(member, encode_one(given)) for member, given in assigned.items())
        return Division(encoded, bool(held_back(subscriptions, assigned)))

    return _guarded(assignor, "assign()", divide)


def hand_over(
    assignor: Assignor, assignment: Assignment, generation_id: int, failed: Callable[[AssignorError], object]
) -> None:
    """Tell the assignor the assignment of this member.

    When it raises, `failed` hears of it, and the member keeps what it got, as in Java: else the group would move again
    and again, as long as the assignor of one member fails.
    """
    try:
        _guarded(assignor, "on_assignment()", lambda: assignor.on_assignment(assignment, generation_id))
    except AssignorError as error:
        failed(error)


def _guarded(assignor: Assignor, what: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except InvalidAssignmentError as error:
        raise AssignorError(f"the assignor {assignor.name!r} failed in {what}: {error}") from error
    except BaseException as error:  # SystemExit too: it would end the loop, and poll would not raise it
        raise AssignorError(f"the assignor {assignor.name!r} failed in {what}: {error!r}") from error


def encode_one(assignment: Assignment) -> bytes:
    """One member's assignment for SyncGroup."""
    topics = tuple(AssignedTopic(name, ps) for name, ps in _by_topic(assignment.partitions).items())
    return encode_assignment(ConsumerProtocolAssignment(topics, assignment.user_data))


def read_assignment(data: bytes) -> Assignment:
    """This member's assignment; without bytes, an empty one. Raises WireError."""
    if not data:
        return Assignment(())
    said = decode_assignment(data)
    return Assignment(
        tuple(TopicPartition(t.topic, p) for t in said.assigned_partitions for p in t.partitions), said.user_data
    )


def _rack(snapshot: ClusterSnapshot, node_id: int) -> str | None:
    node = snapshot.nodes.get(node_id)
    return node.rack if node is not None else None


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        found.setdefault(tp.topic, []).append(tp.partition)
    return {name: tuple(numbers) for name, numbers in found.items()}

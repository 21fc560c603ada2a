"""Whether what an assignor answers is an assignment (SPEC A7). An assignor may be the user's code.

The leader checks every answer before it goes to the coordinator: a wrong one would leave partitions unread, or have
them read twice, and nobody would see why. `BaseAssignor.one_owner` and `.every_partition` tell what an assignor means
to do; what it says there is not checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from itertools import islice

from ottla.assign.types import Assignment, Assignor, Cluster, RebalanceProtocol, Subscription
from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition

#: So many partitions are named in a message.
_NAMED = 5


class Wrong(Enum):
    """What is wrong with an assignor's answer."""

    NO_ASSIGNMENT = "it is no dict of Assignments by member id"
    OTHER_MEMBERS = "its members are not those of the group"
    UNKNOWN = "it has partitions that do not exist"
    NOT_WANTED = "a member got partitions of topics that it does not want"
    TWICE = "partitions were given to several members"
    FORGOTTEN = "partitions were given to nobody"
    NOT_GIVEN_UP = "partitions moved to another member before their owner gave them up"


class InvalidAssignmentError(OttlaError, ValueError):
    """An assignor's answer is no assignment. `wrong` says in what way, `partitions` where."""

    def __init__(self, wrong: Wrong, text: str, partitions: Collection[TopicPartition] = ()) -> None:
        self.wrong = wrong
        self.partitions = tuple(sorted(partitions))
        super().__init__(text)


def user_data_of(assignor: Assignor, topics: frozenset[str]) -> bytes | None:
    """What the assignor sends to the leader. TypeError if that cannot be sent; and whatever it raises."""
    given: object = assignor.subscription_user_data(topics)
    if not isinstance(given, bytes | None):
        raise TypeError(f"subscription_user_data() returned {given!r}; bytes or None are needed")
    return given


def check(
    assignor: Assignor,
    cluster: Cluster,
    subscriptions: Mapping[str, Subscription],
    answer: object,
    protocol: RebalanceProtocol,
) -> Mapping[str, Assignment]:
    """The `answer` of `assignor.assign(cluster, subscriptions)`, if it is an assignment.

    `protocol` is the one that the leader uses. Raises InvalidAssignmentError.
    """
    existing = frozenset(cluster.partitions(frozenset[str]().union(*(said.topics for said in subscriptions.values()))))
    given = _checked_form(answer, subscriptions, len(existing))
    _check_what_exists(given, cluster, subscriptions, existing)
    if getattr(assignor, "one_owner", True):
        _check_one_owner(given)
        if protocol is RebalanceProtocol.COOPERATIVE:
            _check_given_up(given, subscriptions)
    if getattr(assignor, "every_partition", True):
        _check_every_partition(given, subscriptions, existing)
    return given


def _checked_form(answer: object, subscriptions: Mapping[str, Subscription], most: int) -> Mapping[str, Assignment]:
    if not isinstance(answer, Mapping):
        raise InvalidAssignmentError(
            Wrong.NO_ASSIGNMENT, f"it returned {answer!r}, not a dict of Assignments by member id"
        )
    if answer.keys() != subscriptions.keys():
        odd = ", ".join(sorted(map(str, answer.keys() ^ subscriptions.keys())))
        raise InvalidAssignmentError(
            Wrong.OTHER_MEMBERS, f"its members are not those of the group: only one of the two has {odd}"
        )
    found = {member: _one(member, given, most) for member, given in answer.items()}
    return answer if all(found[member] is given for member, given in answer.items()) else found


def _one(member: str, given: object, most: int) -> Assignment:
    """What a member got, as a tuple: a generator could be read only once, and need not end."""
    if not isinstance(given, Assignment):
        raise InvalidAssignmentError(Wrong.NO_ASSIGNMENT, f"it gave {member} {given!r}, which is no Assignment")
    partitions: object = given.partitions
    user_data: object = given.user_data
    if not isinstance(partitions, Iterable):
        text = f"it gave {member} {given!r}, whose partitions are no list of TopicPartitions"
        raise InvalidAssignmentError(Wrong.NO_ASSIGNMENT, text)
    if not isinstance(user_data, bytes | None):
        text = f"it gave {member} the user data {user_data!r}, which are no bytes"
        raise InvalidAssignmentError(Wrong.NO_ASSIGNMENT, text)
    if isinstance(partitions, tuple):
        return given
    some = tuple(islice(partitions, most + 1))
    if len(some) > most:
        raise InvalidAssignmentError(Wrong.TWICE, f"it gave {member} more partitions than there are: {most}")
    return given._replace(partitions=some)


def _check_what_exists(
    given: Mapping[str, Assignment],
    cluster: Cluster,
    subscriptions: Mapping[str, Subscription],
    existing: frozenset[TopicPartition],
) -> None:
    for member, assignment in given.items():
        wanted = subscriptions[member].topics
        for tp in assignment.partitions:
            if isinstance(tp, TopicPartition) and tp in existing and tp.topic in wanted:
                continue
            if not isinstance(tp, TopicPartition):
                raise InvalidAssignmentError(
                    Wrong.UNKNOWN, f"it gave {member} {tp!r}, which does not exist: it is no TopicPartition"
                )
            if any(tp.partition == info.partition for info in cluster.topics.get(tp.topic, ())):
                text = f"it gave {member} {tp}, but {member} does not subscribe to {tp.topic}"
                raise InvalidAssignmentError(Wrong.NOT_WANTED, text, [tp])
            raise InvalidAssignmentError(Wrong.UNKNOWN, f"it gave {member} {tp}, which does not exist", [tp])


def _check_one_owner(given: Mapping[str, Assignment]) -> None:
    owners: dict[TopicPartition, str] = {}
    for member, assignment in given.items():
        for tp in assignment.partitions:
            if tp in owners:
                other = owners[tp]
                who = f"{member} twice" if other == member else f"{other} and to {member}"
                text = f"it gave {tp} to {who} (an assignor that means to do so sets one_owner = False)"
                raise InvalidAssignmentError(Wrong.TWICE, text, [tp])
            owners[tp] = member


def _check_given_up(given: Mapping[str, Assignment], subscriptions: Mapping[str, Subscription]) -> None:
    """KIP-429: a partition goes to another member only after its owner has given it up."""
    newest = max((said.generation_id for said in subscriptions.values()), default=-1)
    added: dict[TopicPartition, str] = {}
    for member, assignment in given.items():
        owned = frozenset(subscriptions[member].owned_partitions)
        added |= dict.fromkeys((tp for tp in assignment.partitions if tp not in owned), member)
    for member, said in subscriptions.items():
        # what a member claims from an older generation may have been given away while it was not there
        early = [tp for tp in said.owned_partitions if tp in added] if said.generation_id == newest else []
        if early:
            text = (
                f"it gave {_names(early)} to {added[early[0]]}, but {member} still owns it: with the cooperative "
                "protocol it goes to nobody now, and to another member in the next rebalance (KIP-429)"
            )
            raise InvalidAssignmentError(Wrong.NOT_GIVEN_UP, text, early)


def _check_every_partition(
    given: Mapping[str, Assignment],
    subscriptions: Mapping[str, Subscription],
    existing: frozenset[TopicPartition],
) -> None:
    left = set(existing)
    for assignment in given.values():
        left.difference_update(assignment.partitions)
    # What somebody owns may be held back until it is given up. In a group that is moving to the cooperative protocol
    # only some members own anything at a rebalance, and the leader need not be one of them.
    for said in subscriptions.values():
        left.difference_update(said.owned_partitions)
    if left:
        text = f"it gave {_names(left)} to nobody (an assignor that means to do so sets every_partition = False)"
        raise InvalidAssignmentError(Wrong.FORGOTTEN, text, left)


def _names(partitions: Iterable[TopicPartition]) -> str:
    ordered = sorted(partitions)
    more = len(ordered) - _NAMED
    return ", ".join(map(str, ordered[:_NAMED])) + (f" and {more} more" if more > 0 else "")

"""A7: assignors of one's own: the examples that come with Ottla, and what a wrong one is told."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.assign import (
    BUILT_IN,
    Assignment,
    Assignor,
    Cluster,
    InvalidAssignmentError,
    PartitionInfo,
    RangeAssignor,
    RebalanceProtocol,
    Subscription,
    Wrong,
    find,
)
from ottla.assign.checking import check
from ottla.assign.examples import BroadcastAssignor, RackAssignor, RandomAssignor, WeightedAssignor
from ottla.assign.rehearsal import Rehearsal
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from tests.assign.groups import Case, cases
from tests.assign.histories import case_with_history

TWO = Cluster.of({"t": 2})
BOTH = {"C0": Subscription(("t",)), "C1": Subscription(("t",))}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EXAMPLES: dict[str, Callable[[], Assignor]] = {
    "random": lambda: RandomAssignor(random.Random(7)),
    "broadcast": BroadcastAssignor,
    "weighted": lambda: WeightedAssignor(2),
    "rack": RackAssignor,
}


def sizes(given_: dict[str, Assignment]) -> dict[str, int]:
    return {member: len(assignment.partitions) for member, assignment in given_.items()}


@pytest.mark.parametrize("make", EXAMPLES.values(), ids=EXAMPLES)
@given(case=cases())
def test_a7_every_example_gives_what_its_check_allows(make: Callable[[], Assignor], case: Case) -> None:
    cluster, subscriptions = case
    answer = make().assign(cluster, subscriptions)
    assert check(make(), cluster, subscriptions, answer, RebalanceProtocol.EAGER) is answer


def test_a7_random_is_the_same_again_from_the_same_seed() -> None:
    cluster = Cluster.of({"t": 50})
    first, again, other = (RandomAssignor(random.Random(seed)).assign(cluster, BOTH) for seed in (7, 7, 8))
    assert first == again != other
    assert all(count > 10 for count in sizes(first).values())


def test_a7_broadcast_gives_a_partition_to_every_member_that_wants_it() -> None:
    said = BOTH | {"C2": Subscription(("s",))}
    given_ = BroadcastAssignor().assign(Cluster.of({"t": 2, "s": 1}), said)
    assert given_ == {
        "C0": Assignment((T0, T1)),
        "C1": Assignment((T0, T1)),
        "C2": Assignment((TopicPartition("s", 0),)),
    }


def test_a7_weighted_divides_by_the_weights_that_members_send() -> None:
    weights = {"C0": 1, "C1": 3}
    said = {
        member: Subscription(("t",), WeightedAssignor(weight).subscription_user_data(frozenset({"t"})))
        for member, weight in weights.items()
    }
    said["C2"] = Subscription(("t",), b"of another assignor")
    assert sizes(WeightedAssignor().assign(Cluster.of({"t": 10}), said)) == {"C0": 2, "C1": 6, "C2": 2}
    with pytest.raises(ConfigError, match="from 1 on, not 0"):
        WeightedAssignor(0)


def test_a7_rack_gives_partitions_to_members_near_them() -> None:
    cluster = Cluster({"t": tuple(PartitionInfo(p, ("b" if p == 3 else "a",)) for p in range(4))})
    group = Rehearsal(RackAssignor, cluster)
    group.join("C0", ["t"], rack_id="b")
    group.settle()
    group.join("C1", ["t"], rack_id="a")
    first, second = group.settle()
    assert first.assignment == {"C0": (TopicPartition("t", 3),), "C1": ()}  # held back: C0 had all of them
    assert second.assignment["C1"] == tuple(TopicPartition("t", p) for p in range(3))


def test_a7_rack_leaves_partitions_where_they_are_if_that_is_as_good() -> None:
    group = Rehearsal(RackAssignor, Cluster.of({"t": 4}))
    group.join("C1", ["t"], holds=[T0, TopicPartition("t", 2)])
    group.join("C0", ["t"], holds=[T1, TopicPartition("t", 3)])
    (only,) = group.settle()
    assert only.assignment == {"C1": (T0, TopicPartition("t", 2)), "C0": (T1, TopicPartition("t", 3))}


def _gives(**partitions: object) -> dict[str, Assignment]:
    return {member: Assignment(cast(tuple[TopicPartition, ...], given_)) for member, given_ in partitions.items()}


@pytest.mark.parametrize(
    ("answer", "wrong", "named", "words"),
    [
        (None, Wrong.NO_ASSIGNMENT, (), "it returned None"),
        ({"C0": None, "C1": None}, Wrong.NO_ASSIGNMENT, (), "it gave C0 None"),
        (_gives(C0=(T0, T1)), Wrong.OTHER_MEMBERS, (), "only one of the two has C1"),
        (_gives(C0=(T0,), C1=(T1,), C9=()), Wrong.OTHER_MEMBERS, (), "only one of the two has C9"),
        (_gives(C0=(T0,), C1=()), Wrong.FORGOTTEN, (T1,), "it gave t-1 to nobody"),
        (_gives(C0=(T0, T1), C1=(T1,)), Wrong.TWICE, (T1,), "it gave t-1 to C0 and to C1"),
        (_gives(C0=(T0, T1, T1), C1=()), Wrong.TWICE, (T1,), "it gave t-1 to C0 twice"),
        (_gives(C0=(T0, T1), C1=(TopicPartition("t", 2),)), Wrong.UNKNOWN, (TopicPartition("t", 2),), "t-2, which"),
        (_gives(C0=(), C1=itertools.repeat(T0, 9)), Wrong.TWICE, (), "it gave C1 more partitions than there are: 2"),
        (_gives(C0=5, C1=()), Wrong.NO_ASSIGNMENT, (), "whose partitions are no list"),
        (
            {"C0": Assignment((T0, T1), cast(bytes, "words")), "C1": Assignment(())},
            Wrong.NO_ASSIGNMENT,
            (),
            "it gave C0 the user data 'words', which are no bytes",
        ),
        (_gives(C0=(T0, T1), C1=("t",)), Wrong.UNKNOWN, (), "it is no TopicPartition"),
        (
            _gives(C0=(T0, T1), C1=(TopicPartition("s", 0),)),
            Wrong.NOT_WANTED,
            (TopicPartition("s", 0),),
            "it gave C1 s-0, but C1 does not subscribe to s",
        ),
    ],
)
def test_a7_a_wrong_answer_is_told_by_what_is_wrong(
    answer: object, wrong: Wrong, named: tuple[TopicPartition, ...], words: str
) -> None:
    with pytest.raises(InvalidAssignmentError) as raised:
        check(RangeAssignor(), Cluster.of({"t": 2, "s": 1}), BOTH, answer, RebalanceProtocol.EAGER)
    assert (raised.value.wrong, raised.value.partitions) == (wrong, named)
    assert words in str(raised.value)


def test_a7_partitions_that_can_be_read_only_once_are_not_lost() -> None:
    class Leaves(RangeAssignor):
        every_partition = False

    answer = _gives(C0=(tp for tp in (T0, T1)), C1=[])
    given = check(Leaves(), Cluster.of({"t": 2}), BOTH, answer, RebalanceProtocol.EAGER)
    assert given == _gives(C0=(T0, T1), C1=())


def test_a7_partitions_that_have_no_end_are_not_read_to_it() -> None:
    """Memory would be full before anything could be told."""
    with pytest.raises(InvalidAssignmentError, match="more partitions than there are"):
        check(
            RangeAssignor(), Cluster.of({"t": 2}), BOTH, _gives(C0=itertools.repeat(T0), C1=()), RebalanceProtocol.EAGER
        )


def test_a7_a_cooperative_assignor_may_hold_back_but_must_not_hand_over_at_once() -> None:
    owns = BOTH | {"C0": Subscription(("t",), None, (T0, T1), 5)}
    held_back = _gives(C0=(T0,), C1=())
    assert check(RackAssignor(), TWO, owns, held_back, RebalanceProtocol.COOPERATIVE) is held_back
    with pytest.raises(InvalidAssignmentError, match="it gave t-1 to C1, but C0 still owns it") as raised:
        check(RackAssignor(), TWO, owns, _gives(C0=(T0,), C1=(T1,)), RebalanceProtocol.COOPERATIVE)
    assert raised.value.wrong is Wrong.NOT_GIVEN_UP


def test_a6_an_eager_leader_may_hold_back_what_a_cooperative_member_owns() -> None:
    # rolling restarts from eager to cooperative: C0 has only cooperative assignors already, the leader C1 has not
    owns = BOTH | {"C0": Subscription(("t",), None, (T0, T1), 5)}
    answer = find("cooperative-sticky").assign(TWO, owns)
    assert answer == _gives(C0=(T0,), C1=())
    assert check(find("cooperative-sticky"), TWO, owns, answer, RebalanceProtocol.EAGER) is answer


def test_a7_an_assignor_says_that_it_leaves_partitions_out() -> None:
    class Sample(RangeAssignor):
        every_partition = False

    answer = _gives(C0=(T0,), C1=())
    assert check(Sample(), TWO, BOTH, answer, RebalanceProtocol.EAGER) is answer


@given(seed=st.integers(0, 2**32))
def test_a7_nothing_that_the_built_in_assignors_answer_is_refused(seed: int) -> None:
    for name in BUILT_IN:
        case = case_with_history(seed, cooperative=name.startswith("cooperative"))
        protocol = max(find(name).protocols)
        check(find(name), *case, find(name).assign(*case), protocol)

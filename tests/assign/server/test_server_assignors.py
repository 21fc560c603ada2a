"""The assignors of the server's side: even and sticky."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from ottla.assign.server import (
    BUILT_IN,
    GroupSpec,
    MemberSpec,
    Partitions,
    ServerAssignor,
    SubscriptionType,
    TopicSpec,
    checked,
)
from ottla.assign.server.lag_weighted import LagWeighted

_T, _U = b"t" * 16, b"u" * 16
_TOPICS = {_T: TopicSpec("t", 6), _U: TopicSpec("u", 3)}


def _group(*members: MemberSpec, lags: dict[bytes, dict[int, int]] | None = None) -> GroupSpec:
    same = len({tuple(member.topic_ids) for member in members}) <= 1
    kind = SubscriptionType.HOMOGENEOUS if same else SubscriptionType.HETEROGENEOUS
    return GroupSpec({f"m{n}": member for n, member in enumerate(members)}, _TOPICS, kind, lags or {})


def _all(target: object) -> list[tuple[bytes, int]]:
    assert isinstance(target, dict)
    return sorted((t, p) for given in target.values() for t, numbers in given.items() for p in numbers)


#: Also more members than there are partitions.
_SUBSCRIBED = st.lists(st.sampled_from([(_T,), (_U,), (_T, _U)]), min_size=1, max_size=12)
_ASSIGNORS: dict[str, Callable[[], ServerAssignor]] = {**BUILT_IN, "lag-weighted": LagWeighted}


@given(subscribed=_SUBSCRIBED, name=st.sampled_from([*_ASSIGNORS]))
def test_a10_every_partition_that_is_read_goes_to_one_reader(subscribed: list[tuple[bytes, ...]], name: str) -> None:
    assignor = _ASSIGNORS[name]()
    group = _group(*(MemberSpec(topics, {}) for topics in subscribed))
    target = assignor.assign(group)
    checked(assignor, group, target)
    read = {topic for topics in subscribed for topic in topics}
    assert _all(target) == [(topic, number) for topic in sorted(read) for number in range(_TOPICS[topic].partitions)]


def _later(group: GroupSpec, target: Mapping[str, Partitions]) -> GroupSpec:
    """The group when its members have what `target` gave them."""
    members = {each: spec._replace(assigned=target.get(each, {})) for each, spec in group.members.items()}
    return group._replace(members=members)


#: How far the group is behind in some of the partitions; also with a partition that is all the work.
_LAGS = st.dictionaries(
    st.sampled_from([_T, _U]),
    st.dictionaries(st.integers(0, 2), st.integers(0, 3) | st.integers(0, 10_000) | st.just(1_000_000)),
)


@given(subscribed=_SUBSCRIBED, lags=_LAGS, name=st.sampled_from(["uniform", "lag-weighted"]))
def test_nothing_moves_when_nothing_has_changed(
    subscribed: list[tuple[bytes, ...]], lags: dict[bytes, dict[int, int]], name: str
) -> None:
    assignor = _ASSIGNORS[name]()
    group = _group(*(MemberSpec(topics, {}) for topics in subscribed), lags=lags)
    target = assignor.assign(group)
    again = assignor.assign(_later(group, target))
    assert {each: _plain(target[each]) for each in target} == {each: _plain(again[each]) for each in again}


def _plain(partitions: Partitions) -> list[tuple[bytes, int]]:
    return sorted((topic, number) for topic, numbers in partitions.items() for number in numbers)


def test_the_lag_decides_who_gets_how_many() -> None:
    lags = {_T: {0: 10_000, 1: 10, 2: 10, 3: 10, 4: 10, 5: 10}}
    group = _group(MemberSpec((_T,), {}), MemberSpec((_T,), {}), lags=lags)
    target = LagWeighted().assign(group)
    assert sorted(len(given[_T]) for given in target.values()) == [1, 5]
    assert LagWeighted().assign(_later(group, target)) == target


def test_a_member_that_comes_takes_nothing_from_those_that_have_one_partition() -> None:
    """m1, m2 and m3 have a partition of u each; m0 comes, and there is no fourth."""
    held = [MemberSpec((_U,), {_U: (number,)}) for number in range(3)]
    target = LagWeighted().assign(_group(MemberSpec((_U,), {}), *held))
    assert {each: _plain(given) for each, given in target.items()} == {
        "m0": [],
        "m1": [(_U, 0)],
        "m2": [(_U, 1)],
        "m3": [(_U, 2)],
    }


def test_a_partition_that_is_more_than_a_share_stays_and_the_others_go() -> None:
    hot = MemberSpec((_U,), {_U: (0, 1, 2)})
    target = LagWeighted().assign(_group(hot, MemberSpec((_U,), {}), lags={_U: {0: 10_000, 1: 5, 2: 10}}))
    assert {each: _plain(given) for each, given in target.items()} == {"m0": [(_U, 0)], "m1": [(_U, 1), (_U, 2)]}


def test_the_heaviest_goes_if_its_owner_alone_can_read_the_others() -> None:
    hot = MemberSpec((_T, _U), {_T: (0, 1, 2, 3, 4, 5), _U: (0, 1, 2)})
    lags = {_T: {0: 5_000, 1: 3_000, 2: 2_000}, _U: {0: 6_000, 1: 0, 2: 0}}
    target = LagWeighted().assign(_group(hot, MemberSpec((_U,), {}), lags=lags))
    assert (_U, 0) in _plain(target["m1"])

"""The assignors of the server's side: even and sticky."""

from __future__ import annotations

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


_SUBSCRIBED = st.lists(st.sampled_from([(_T,), (_U,), (_T, _U)]), min_size=1, max_size=6)


@given(subscribed=_SUBSCRIBED, name=st.sampled_from([*BUILT_IN, "lag-weighted"]))
def test_a10_every_partition_that_is_read_goes_to_one_reader(subscribed: list[tuple[bytes, ...]], name: str) -> None:
    assignor: ServerAssignor = LagWeighted() if name == "lag-weighted" else BUILT_IN[name]()
    group = _group(*(MemberSpec(topics, {}) for topics in subscribed))
    target = assignor.assign(group)
    checked(assignor, group, target)
    read = {topic for topics in subscribed for topic in topics}
    assert _all(target) == [(topic, number) for topic in sorted(read) for number in range(_TOPICS[topic].partitions)]


@given(subscribed=_SUBSCRIBED)
def test_uniform_moves_nothing_when_nothing_has_changed(subscribed: list[tuple[bytes, ...]]) -> None:
    uniform = BUILT_IN["uniform"]()
    group = _group(*(MemberSpec(topics, {}) for topics in subscribed))
    target = uniform.assign(group)
    members = {each: spec._replace(assigned=target.get(each, {})) for each, spec in group.members.items()}
    again = uniform.assign(group._replace(members=members))
    assert {each: _plain(target[each]) for each in target} == {each: _plain(again[each]) for each in again}


def _plain(partitions: Partitions) -> list[tuple[bytes, int]]:
    return sorted((topic, number) for topic, numbers in partitions.items() for number in numbers)


def test_the_lag_decides_who_gets_how_many() -> None:
    lags = {_T: {0: 10_000, 1: 10, 2: 10, 3: 10, 4: 10, 5: 10}}
    group = _group(MemberSpec((_T,), {}), MemberSpec((_T,), {}), lags=lags)
    target = LagWeighted().assign(group)
    assert sorted(len(given[_T]) for given in target.values()) == [1, 5]
    members = {each: spec._replace(assigned=target[each]) for each, spec in group.members.items()}
    assert LagWeighted().assign(group._replace(members=members)) == target

"""A10: what an assignor of the server's side answers is a target, or it is refused with what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, cast

import pytest

from ottla.assign.server import (
    AssignorError,
    GroupSpec,
    MemberSpec,
    Partitions,
    ServerAssignor,
    SubscriptionType,
    TopicSpec,
    checked,
)

T, U = bytes(15) + b"t", bytes(15) + b"u"
GROUP = GroupSpec(
    {"a": MemberSpec((T, U), {}), "b": MemberSpec((T,), {})},
    {T: TopicSpec("t", 2), U: TopicSpec("u", 1)},
    SubscriptionType.HETEROGENEOUS,
)
GOOD: dict[str, dict[bytes, Any]] = {"a": {T: [0], U: [0]}, "b": {T: [1]}}


class Own:
    """An assignor of a user's."""

    name = "own"

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        raise NotImplementedError


class Pauses(Own):
    """It means to leave partitions unread."""

    every_partition = False


def test_a10_a_target_is_taken_in_any_form_of_numbers() -> None:
    given = {"a": {T: range(1), U: {0}}, "b": {T: (number for number in [True])}}
    assert checked(Own(), GROUP, given) == {"a": {T: (0,), U: (0,)}, "b": {T: (1,)}}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "it answered None, not a dict"),
        ([("a", {})], "not a dict"),
        ({"a": [0, 1]}, r"it gave 'a' \[0, 1\], not a dict"),
        ({"c": {}}, "'c', which is no member of the group"),
        ({1: {}}, "1, which is no member of the group"),
        ({"a": {b"?": [0]}}, "there is no such topic id"),
        ({"a": {"t": [0]}}, "there is no such topic id"),
        ({"b": {U: [0]}}, "partitions of u for 'b', which does not subscribe to it"),
        ({"a": {T: "01"}}, "it gave 'a' '01' of t, not a list of partition numbers"),
        ({"a": {T: [0.0]}}, "not a list of partition numbers"),
        ({"a": {T: 1}}, "not a list of partition numbers"),
        ({"a": {T: [-1]}}, "partition t--1: the topic has 2"),
        ({"a": {T: count()}}, "partition t-2: the topic has 2"),
        ({"a": {T: range(10**18)}}, "partition t-2: the topic has 2"),
        ({"a": {T: iter(lambda: 0, None)}}, "a partition of t twice for 'a'"),
        ({"a": {T: [0, 0]}}, "a partition of t twice for 'a'"),
        ({"a": {T: [0]}, "b": {T: [0]}}, "partition t-0 for both 'a' and 'b'"),
        ({"a": {T: [0, 1]}}, "it gave u-0 to nobody .*every_partition = False"),
        ({}, "it gave t-0 to nobody"),
    ],
)
def test_a10_an_answer_that_is_no_target_is_refused(answer: object, problem: str) -> None:
    with pytest.raises(AssignorError, match=problem):
        checked(Own(), GROUP, answer)


def test_a10_partitions_may_be_left_to_nobody_on_purpose() -> None:
    assert checked(Pauses(), GROUP, {"b": {T: [1]}}) == {"b": {T: (1,)}}
    with pytest.raises(AssignorError, match="for both"):
        checked(Pauses(), GROUP, {"a": {T: [0]}, "b": {T: [0]}})


def test_a10_a_whole_target_is_as_it_was_given() -> None:
    assert checked(cast(ServerAssignor, Own()), GROUP, GOOD) == {"a": {T: (0,), U: (0,)}, "b": {T: (1,)}}

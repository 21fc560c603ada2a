"""What `ottla groups watch` concludes from looks at a group: who came, what moved, and who stood still for how long."""

from __future__ import annotations

from ottla import TopicPartition
from ottla.cli.groups.changes import Change, Changes, Move
from ottla.client.admin.types import GroupDescription, MemberDescription

_T = [TopicPartition("t", number) for number in range(4)]


def _group(
    state: str, protocol: str = "range", epoch: int | None = None, **members: tuple[int, ...]
) -> GroupDescription:
    """Members a, b, c with the partitions of these numbers."""
    described = tuple(
        MemberDescription(f"id-{name}", name, "client", "host", tuple(_T[number] for number in numbers))
        for name, numbers in members.items()
    )
    return GroupDescription("g", state, "consumer", protocol, described, "classic", epoch, epoch)


def _told(*looks: tuple[float, GroupDescription | None]) -> list[str]:
    changes = Changes()
    return [str(change) for at_s, group in looks for change in changes.seen(group, at_s)]


def test_the_first_look_says_how_it_is_and_the_next_one_nothing() -> None:
    stable = _group("Stable", a=(0, 1), b=(2, 3))
    assert _told((0, stable), (1, stable)) == ["Stable, 2 members"]


def test_an_eager_rebalance_stops_everybody() -> None:
    changes = Changes()
    changes.seen(_group("Stable", a=(0, 1), b=(2, 3)), 0)
    joined = changes.seen(_group("PreparingRebalance", "", a=(), b=(), c=()), 10)
    assert [str(change) for change in joined] == ["c joined", "PreparingRebalance"]
    assert [str(c) for c in changes.seen(_group("CompletingRebalance", "range", a=(), b=(), c=()), 11)] == [
        "CompletingRebalance"
    ]
    (stable,) = changes.seen(_group("Stable", a=(0, 1), b=(2,), c=(3,)), 12.5)
    assert stable == Change(
        "stable",
        state="Stable",
        took_s=2.5,
        members=3,
        moves=(Move(_T[3], "b", "c"),),
        still_s={"a": 2.5, "b": 2.5, "c": 2.5},
    )
    assert str(stable) == ("Stable after 2.5 s, 3 members; moved: t-3 b → c; stood still: a 2.5 s, b 2.5 s, c 2.5 s")


def test_a_cooperative_rebalance_stops_only_what_moves() -> None:
    said = _told(
        (0, _group("Stable", "cooperative-sticky", a=(0, 1), b=(2, 3))),
        (1, _group("PreparingRebalance", "", a=(), b=(), c=())),
        (2, _group("Stable", "cooperative-sticky", a=(0, 1), b=(2,), c=(3,))),
    )
    assert said[-1] == "Stable after 1.0 s, 3 members; moved: t-3 b → c; stood still: c 1.0 s"


def test_in_the_consumer_protocol_a_partition_stands_still_while_nobody_has_it() -> None:
    said = _told(
        (0, _group("Stable", "uniform", 1, a=(0, 1, 2, 3))),
        (1, _group("Reconciling", "uniform", 2, a=(0, 1, 2, 3), b=())),
        (2, _group("Reconciling", "uniform", 2, a=(0, 1), b=())),
        (4, _group("Reconciling", "uniform", 2, a=(0, 1), b=(2,))),
        (4.5, _group("Stable", "uniform", 2, a=(0, 1), b=(2, 3))),
    )
    assert said == [
        "Stable, 1 member",
        "b joined",
        "Reconciling",
        "Stable after 3.5 s, 2 members; moved: t-2 a → b, t-3 a → b; stood still: b 2.5 s",
    ]


def test_a_rebalance_between_two_looks_is_seen_by_what_it_moved() -> None:
    said = _told((0, _group("Stable", a=(0, 1, 2, 3))), (1, _group("Stable", a=(0, 1), b=(2, 3))))
    assert said[1:] == ["b joined", "Stable, 2 members; moved: t-2 a → b, t-3 a → b"]


def test_members_that_leave_and_a_group_that_comes_and_goes() -> None:
    said = _told(
        (0, None),
        (1, None),
        (2, _group("PreparingRebalance", "", a=())),
        (3, _group("Stable", a=(0, 1, 2, 3))),
        (4, _group("Empty", "")),
        (5, None),
        (6, None),
        (7, _group("Stable", a=(0,))),
    )
    assert said == [
        "there is no such group yet",
        "a joined",
        "PreparingRebalance",
        "Stable after 1.0 s, 1 member; moved: t-0 - → a, t-1 - → a, t-2 - → a, t-3 - → a",
        "a left",
        "Empty, no members; moved: t-0 a → -, t-1 a → -, t-2 a → -, t-3 a → -",
        "the group is gone",
        "a joined",
        "Stable, 1 member",
    ]


def test_a_member_without_an_instance_id_is_known_by_its_client_and_a_part_of_its_id() -> None:
    group = _group("Stable", a=())
    (member,) = group.members
    dynamic = member._replace(member_id="worker-0f8fad5b-d9cb-469f", client_id="worker", group_instance_id=None)
    said = _told((0, group), (1, group._replace(members=(member, dynamic))))
    assert said == ["Stable, 1 member", "worker-0f8fad5b joined"]

"""What `ottla groups watch` says of the events of a group: hand-written ones, and those of a broker that has none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.cli.groups.events import KNOWN_VERSION, Events, Told
from ottla.coordinator.group.history import VERSION

_UUID = "6197412d-0000-4000-8000-000000000001"
_NOTHING = "this record is no event of a group, and is passed over"


def _event(name: str, at_ms: int = 0, kind: str = "classic", **fields: object) -> bytes:
    head = {"version": 1, "event": name, "group": "g", "kind": kind, "time_ms": at_ms, "generation": 3}
    return json.dumps({**head, **fields}).encode()


def _who(name: str, **more: object) -> dict[str, Any]:
    """A static member: its instance id is its name."""
    return {"member_id": f"id-{name}", "instance_id": name, "client_id": "c", "client_host": "/10.0.0.1", **more}


def _joined(name: str) -> bytes:
    return _event("member-joined", **_who(name, replaces=None))


def _completed(*moved: tuple[int, str | None, str | None], at_ms: int = 0, **fields: Any) -> bytes:
    """`moved`: number of the partition, from whom, to whom."""
    listed = [{"topic": "t", "partition": number, "from": before, "to": after} for number, before, after in moved]
    usual = {
        "reason": "",
        "protocol": "range",
        "members": 2,
        "duration_ms": 1_500,
        "first_join_to_stable_ms": 1_400,
        "moved": listed,
        "moved_count": len(listed),
        "waited": [],
        "waited_count": 0,
    }
    return _event("rebalance-completed", at_ms, **{**usual, **fields})


def _said(*values: bytes) -> list[str]:
    events = Events()
    return [told.text for value in values if (told := events.told(value)) is not None]


def test_the_reader_knows_what_the_broker_writes() -> None:
    assert KNOWN_VERSION == VERSION


def test_joins_departures_and_expulsions_have_their_reasons() -> None:
    dynamic: dict[str, Any] = {
        "member_id": f"web-{_UUID}",
        "instance_id": None,
        "client_id": "web",
        "client_host": "/10.0.0.2",
    }
    assert _said(
        _event("member-joined", **dynamic, replaces=None),
        _event("member-joined", **_who("a", replaces="id-before")),
        _event("rebalance-started", reason=f"web-{_UUID} joined"),
        _event("member-left", **_who("a", why="left", reason="the shop closes")),
        _event("member-left", **_who("a", why="left", reason="")),
        _event("member-expelled", **dynamic, why="session-timeout", reason="no heartbeat in time"),
        _event("group-converted", kind="consumer"),
        _event("group-emptied"),
        _event("group-deleted"),
    ) == [
        "web-6197412d joined from 10.0.0.2",
        "a joined from 10.0.0.1, in place of member id-before",
        "rebalance begins in generation 3: web-6197412d joined",
        "a left: the shop closes",
        "a left",
        "web-6197412d was expelled, session-timeout: no heartbeat in time",
        "it is a group of the consumer protocol now",
        "no members are left, generation 3",
        "the group was deleted",
    ]


def test_an_eager_rebalance_says_what_moved_and_that_everybody_waited() -> None:
    waited = [{"member_id": "id-a", "ms": 1_400}, {"member_id": f"x-{_UUID}", "ms": 20}]
    completed = _completed((0, None, "id-a"), (1, f"x-{_UUID}", "id-a"), waited=waited, waited_count=2)
    assert _said(_joined("a"), completed)[1:] == [
        "generation 3 is stable after 1,500 ms (1,400 ms from the first join); 2 members by range; "
        "moved: t-0 - → a, t-1 x-6197412d → a; stood still: a 1,400 ms, x-6197412d 20 ms"
    ]


def test_of_an_assignor_that_is_not_known_it_only_says_who_waited() -> None:
    completed = _completed(protocol="mine", waited=[{"member_id": "id-a", "ms": 7}], waited_count=1)
    (said,) = _said(completed)
    assert said.endswith("2 members by mine; nothing moved; waited: id-a 7 ms")


def test_in_a_cooperative_rebalance_a_partition_stands_still_between_two_events() -> None:
    strategy: dict[str, Any] = {"protocol": "cooperative-sticky"}
    first, second, third = _said(
        _completed((1, "id-a", None), at_ms=1_000, **strategy),
        _completed((1, None, "id-b"), (2, None, "id-b"), at_ms=3_250, **strategy),
        _completed((1, "id-b", "id-a"), at_ms=9_000, **strategy),
    )
    assert first.endswith("moved: t-1 id-a → -")
    assert second.endswith("moved: t-1 - → id-b, t-2 - → id-b; stood still: id-b 2,250 ms")
    assert third.endswith("moved: t-1 id-b → id-a")


def test_in_the_consumer_protocol_only_what_moves_stands_still() -> None:
    common: dict[str, Any] = {"kind": "consumer", "protocol": None, "first_join_to_stable_ms": None}
    gone = _event("member-expelled", **_who("a", why="session-timeout", reason=""))
    (_, joined, _, after) = _said(
        _joined("b"),
        _completed((0, "id-a", "id-b"), (1, None, "id-b"), **common),
        gone,
        _completed((2, "id-a", "id-b"), **common),
    )
    assert joined == (
        "generation 3 is stable after 1,500 ms; 2 members; moved: t-0 id-a → b, t-1 - → b; "
        "stood still: b at most 1,500 ms"
    )
    assert after.endswith("moved: t-2 a → b"), "how long the dead member had not read is not known"


def test_in_the_consumer_protocol_it_is_said_who_waited_for_whom() -> None:
    waited = [
        {"member_id": "id-b", "ms": 1_200, "for": ["id-a", f"x-{_UUID}"], "for_count": 4},
        {"member_id": "id-c", "ms": 3, "for": [], "for_count": 0},
    ]
    of_consumers: dict[str, Any] = {"kind": "consumer", "protocol": "uniform", "waited": waited, "waited_count": 2}
    first = _completed((0, "id-a", "id-b"), **of_consumers)
    without_join = _completed(**of_consumers, duration_ms=7, first_join_to_stable_ms=7)
    said = _said(_joined("a"), _joined("b"), first, without_join)
    assert said[2] == (
        "generation 3 is stable after 1,500 ms (1,400 ms from the first join); 2 members by uniform; moved: t-0 a → b; "
        "stood still: b at most 1,500 ms; "
        "waited for others, reading on: b 1,200 ms for a, x-6197412d and 2 more, id-c 3 ms"
    )
    assert said[3].startswith("generation 3 is stable after 7 ms; 2 members by uniform; nothing moved; waited for")


def test_what_was_cut_or_cannot_be_read_is_said() -> None:
    waited = [{"member_id": "id-a", "ms": 1}]
    cut, unread = _said(
        _completed((0, None, "id-a"), moved_count=1_201, waited=waited, waited_count=3),
        _completed(moved=None, moved_count=None),
    )
    assert cut.endswith("moved: t-0 - → id-a and 1,200 more; stood still: id-a 1 ms and 2 more")
    assert unread.endswith("what moved is not known, as the assignments cannot be read")


def test_lost_events_are_shown_and_belong_to_no_group() -> None:
    lost = json.dumps({"version": 1, "event": "events-lost", "time_ms": 5, "count": 1_000}).encode()
    assert Events().told(lost) == Told("events are missing: the broker could not write 1,000 events", None, 5)


def test_a_version_that_is_not_known_is_said_once_and_new_events_are_passed_over() -> None:
    newer = _event("member-joined", version=2)
    assert _said(newer, newer, _event("something-new"), _event("group-deleted")) == [
        "there are events of version 2, and this ottla knows versions to 1: they are passed over. A newer ottla shows "
        "them, --json prints them as they are, and --every asks the coordinator instead",
        "the group was deleted",
    ]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"7",
        b"[]",
        b"{}",
        b'{"version": "x"}',
        _event("member-joined"),
        _completed(moved=7),
        _event("rebalance-started", reason=None),
        _event("group-deleted", at_ms=10**15),
    ],
)
def test_a_record_that_is_no_event_is_said(value: bytes) -> None:
    assert Events().told(value) == Told(_NOTHING)


def test_no_client_steers_the_terminal() -> None:
    assert _said(_event("rebalance-started", reason="\x1b[2J\nü")) == [
        "rebalance begins in generation 3: \\x1b[2J\\nü",
    ]


def test_names_are_known_from_before_and_forgotten_with_the_member() -> None:
    events = Events({"g": {"id-a": "early"}})

    def said(value: bytes) -> str:
        told = events.told(value)
        assert told is not None
        return told.text

    move = _completed((0, "id-a", "id-b"))
    assert "t-0 early → id-b" in said(move)
    said(_event("member-left", **_who("a", why="left", reason="")))
    assert "t-0 a → id-b" in said(move)
    assert "t-0 id-a → id-b" in said(move)

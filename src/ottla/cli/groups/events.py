"""What `ottla groups watch` says of the events that our broker writes (docs/group-events.md). Pure: an event in, a
sentence out.

A member is called by the name that it joined with, as in `groups.changes`. Who stood still follows from an event, or
from two. With an eager assignor a member reads nothing from its JoinGroup to its assignment: that is `waited`. A
cooperative rebalance gives partitions to nobody first, and to their new readers in a second one: a partition stands
still between the two. In the consumer protocol (KIP-848) only what moves stands still, and not for longer than the
rebalance lasts. There `waited` says who waited for partitions that others had still, and for whom.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.base.words import counted
from ottla.cli.common import printable
from ottla.cli.groups.changes import short_name

#: The newest version of the events' schema that this reader understands.
KNOWN_VERSION: Final = 1

#: The assignors under which a member gives up everything before it joins again.
_EAGER: Final = frozenset({"range", "roundrobin", "sticky"})
#: How a coordinator makes the id of a member: a name, and a UUID.
_MADE_ID: Final = re.compile(r"(?<=-)([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

#: The first time that has no date of four digits.
_TIME_ENDS_MS: Final = 253_402_300_800_000

_Fields: TypeAlias = Mapping[str, Any]
#: A topic and the number of its partition.
_Partition: TypeAlias = tuple[str, int]


class Told(NamedTuple):
    """A sentence, the group that it is about, and when that happened (ms since 1970). A remark has neither of them."""

    text: str
    group: str | None = None
    time_ms: int | None = None


_NO_EVENT: Final = Told("this record is no event of a group, and is passed over")


@dataclass(slots=True)
class _Group:
    """What is remembered of a group, as long as it has members."""

    names: dict[str, str] = field(default_factory=dict)
    #: Members that are gone. The next rebalance tells who has their partitions.
    gone: set[str] = field(default_factory=set)
    #: Partitions that nobody has, and since when (ms since 1970).
    idle_since_ms: dict[_Partition, int] = field(default_factory=dict)


class Events:
    """Tells event after event. `names` are those of the members that are there already: group → member id → name."""

    def __init__(self, names: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._groups = {group: _Group(dict(known)) for group, known in (names or {}).items()}
        self._newer: set[int] = set()

    def told(self, value: bytes | None) -> Told | None:
        """The record's event as a sentence. None is one that says nothing to a person, or that has been said."""
        event = decoded(value)
        try:
            if event is None:
                return _NO_EVENT
            if event["version"] > KNOWN_VERSION:
                return self._of_newer_version(event["version"])
            text, group, time_ms = self._text(event), event.get("group"), event["time_ms"]
            if not 0 <= time_ms < _TIME_ENDS_MS:
                return _NO_EVENT
            return None if text is None else Told(printable(text), group and printable(group), time_ms)
        except (LookupError, TypeError, ValueError, AttributeError):
            return _NO_EVENT

    def _of_newer_version(self, version: int) -> Told | None:
        if version in self._newer:
            return None
        self._newer.add(version)
        return Told(
            f"there are events of version {version}, and this ottla knows versions to {KNOWN_VERSION}: they are passed "
            "over. A newer ottla shows them, --json prints them as they are, and --every asks the coordinator instead"
        )

    def _text(self, event: _Fields) -> str | None:
        if event["event"] == "events-lost":
            return f"events are missing: the broker could not write {counted(event['count'], 'event')}"
        group = self._groups.setdefault(event["group"], _Group())
        match event["event"]:
            case "member-joined":
                return _joined(event, group)
            case "member-left" | "member-expelled":
                return _gone(event, group)
            case "rebalance-started":
                return f"rebalance begins in generation {event['generation']}: {_reason(event, group)}"
            case "rebalance-completed":
                return _completed(event, group)
            case "group-emptied":
                self._groups.pop(event["group"])
                return f"no members are left, generation {event['generation']}"
            case "group-converted":
                return f"it is a group of the {event['kind']} protocol now"
            case "group-deleted":
                self._groups.pop(event["group"])
                return "the group was deleted"
            case _:
                return None


def decoded(value: bytes | None) -> dict[str, Any] | None:
    """The fields of an event; None if the record is none."""
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _joined(event: _Fields, group: _Group) -> str:
    member_id = event["member_id"]
    name = group.names[member_id] = short_name(member_id, event["client_id"], event["instance_id"])
    group.gone.discard(member_id)
    replaced = "" if event["replaces"] is None else f", in place of member {event['replaces']}"
    return f"{name} joined from {event['client_host'].lstrip('/')}{replaced}"


def _gone(event: _Fields, group: _Group) -> str:
    member_id = event["member_id"]
    name = group.names[member_id] = short_name(member_id, event["client_id"], event["instance_id"])
    group.gone.add(member_id)
    said = f"{name} left" if event["event"] == "member-left" else f"{name} was expelled, {event['why']}"
    return f"{said}: {_reason(event, group)}" if event["reason"] else said


def _completed(event: _Fields, group: _Group) -> str:
    first_ms, protocol = event["first_join_to_stable_ms"], event["protocol"]
    # In the consumer protocol nobody need have joined: then it is the time from the change that began it.
    is_told = first_ms is None or (event["kind"] == "consumer" and first_ms == event["duration_ms"])
    since_first = "" if is_told else f" ({first_ms:,} ms from the first join)"
    said = [
        f"generation {event['generation']} is stable after {event['duration_ms']:,} ms{since_first}",
        counted(event["members"], "member") + (f" by {protocol}" if protocol else ""),
        _moved(event, group),
        *_still(event, group),
    ]
    for member_id in group.gone:
        group.names.pop(member_id, None)
    group.gone.clear()
    return "; ".join(said)


def _moved(event: _Fields, group: _Group) -> str:
    if event["moved"] is None:
        return "what moved is not known, as the assignments cannot be read"
    moves = [
        f"{each['topic']}-{each['partition']} {_name(each['from'], group)} → {_name(each['to'], group)}"
        for each in event["moved"]
    ]
    return f"moved: {_listed(moves, event['moved_count'])}" if moves else "nothing moved"


def _still(event: _Fields, group: _Group) -> list[str]:
    """Who stood still, and for how long, the longest first."""
    unread_ms = _unread(event, group)
    if event["kind"] == "classic" and event["protocol"] in _EAGER:
        return _waited("stood still", event, group)
    if event["kind"] == "classic":
        still = _by_length(unread_ms)
        is_known = event["protocol"] == "cooperative-sticky"
        waited = _waited("waited, reading on" if is_known else "waited", event, group)
        return [*([f"stood still: {', '.join(still)}"] if still else []), *waited]
    duration_ms = event["duration_ms"]
    took_over = {
        _name(each["to"], group): duration_ms
        for each in event["moved"] or ()
        if each["from"] is not None and each["to"] is not None and each["from"] not in group.gone
    }
    still = _by_length(unread_ms) + [f"{name} at most {ms:,} ms" for name, ms in sorted(took_over.items())]
    waited = _waited("waited for others, reading on", event, group)
    return [*([f"stood still: {', '.join(still)}"] if still else []), *waited]


def _unread(event: _Fields, group: _Group) -> dict[str, int]:
    """Member → for how many ms one of its new partitions had nobody. Notes which have nobody from now on."""
    found: dict[str, int] = {}
    for each in event["moved"] or ():
        partition = (each["topic"], each["partition"])
        since_ms = group.idle_since_ms.pop(partition, None)
        if each["to"] is None:
            group.idle_since_ms[partition] = event["time_ms"]
        elif since_ms is not None:
            name = _name(each["to"], group)
            found[name] = max(found.get(name, 0), event["time_ms"] - since_ms)  # below 0: the clock was set back
    return found


def _waited(what: str, event: _Fields, group: _Group) -> list[str]:
    waits = [f"{_name(each['member_id'], group)} {each['ms']:,} ms{_whom(each, group)}" for each in event["waited"]]
    return [f"{what}: {_listed(waits, event['waited_count'])}"] if waits else []


def _whom(wait: _Fields, group: _Group) -> str:
    names = [_name(each, group) for each in wait.get("for", ())]
    return f" for {_listed(names, wait['for_count'])}" if names else ""


def _by_length(still_ms: Mapping[str, int]) -> list[str]:
    longest = sorted(still_ms.items(), key=lambda each: (-each[1], each[0]))
    return [f"{name} {ms:,} ms" for name, ms in longest]


def _listed(some: list[str], count: int) -> str:
    more = count - len(some)
    return ", ".join(some) + (f" and {more:,} more" if more > 0 else "")


def _name(member_id: str | None, group: _Group) -> str:
    """Of a member that joined before the first event that was read, only the id is known."""
    if member_id is None:
        return "-"
    return group.names.get(member_id) or _MADE_ID.sub(r"\1", member_id)


def _reason(event: _Fields, group: _Group) -> str:
    """The event's reason, with names in place of ids."""
    reason: str = event["reason"]
    for member_id, name in group.names.items():
        reason = reason.replace(member_id, name)
    return _MADE_ID.sub(r"\1", reason)

"""The members of a classic group in order of joining, with what would otherwise be counted over all of them each time.

Groups may have thousands of members, and each of them sends requests at every rebalance. So what a request needs to
know about all members is kept up to date with each change: who is which static member, how many support a protocol,
how many wait for the answer to their join.

Only a `Draft` changes an object of this class, and only its own copy. All other code treats it as an immutable value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.base.limits import CLASSIC_MEMBERS_PER_STEP
from ottla.base.require import require
from ottla.coordinator.group.classic.subscriptions import Subscriptions
from ottla.wire.messages.join_group import JoinGroupRequestProtocol


class Member(NamedTuple):
    """One member of a classic group. Time-outs in milliseconds; tokens name the requests that wait for an answer.

    (A rebalance changes all members within one turn of the event loop, and a dataclass takes three times as long.)
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    #: In the member's order of preference. It votes for the first protocol that all members support.
    protocols: tuple[JoinGroupRequestProtocol, ...]
    assignment: bytes = b""
    join_token: int | None = None
    sync_token: int | None = None
    #: The member has joined and was never answered. It cannot send heartbeats, so the limit of its first join holds.
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def metadata_bytes(self) -> int:
        """What it says of itself, in all its protocols."""
        return sum(len(offered.name) + len(offered.metadata) for offered in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        """The member's subscription under `protocol`."""
        for offered in self.protocols:
            if offered.name == protocol:
                return offered.metadata
        require(False, f"member {self.member_id} does not support protocol {protocol}")
        return b""

    def vote(self, candidates: frozenset[str]) -> str:
        """The first of the member's protocols that is a candidate."""
        for offered in self.protocols:
            if offered.name in candidates:
                return offered.name
        require(False, f"member {self.member_id} supports none of {sorted(candidates)}")
        return ""


class Members(Mapping[str, Member]):
    """Members by id. See the module."""

    __slots__ = (
        "_by_id",
        "_by_instance",
        "_encoded",
        "_supporters",
        "joins_waiting",
        "metadata_bytes",
        "subscriptions",
    )

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._by_id: dict[str, Member] = {}
        #: Member ids of static members.
        self._by_instance: dict[str, str] = {}
        #: How many members support a protocol.
        self._supporters: Counter[str] = Counter()
        #: What `encoded` gave before, by member id; copies share it, for a member that has changed is another object.
        self._encoded: dict[str, tuple[Member, str | None, bytes]] = {}
        #: What members subscribe to; copies share it.
        self.subscriptions = Subscriptions()
        #: How many members wait for the answer to their JoinGroup.
        self.joins_waiting = 0
        #: What all members say of themselves.
        self.metadata_bytes = 0
        for member in members:
            self.put(member)

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    # -- questions

    def static_member_id(self, group_instance_id: str) -> str | None:
        """The member id that a static member has at present."""
        return self._by_instance.get(group_instance_id)

    def candidates(self) -> frozenset[str]:
        """The protocols that every member supports."""
        return frozenset(name for name, count in self._supporters.items() if count == len(self._by_id))

    def parts(self) -> Iterator[list[Member]]:
        """The members as they are now, as many at a time as one step goes through."""
        members = list(self._by_id.values())
        for begin in range(0, len(members), CLASSIC_MEMBERS_PER_STEP):
            yield members[begin : begin + CLASSIC_MEMBERS_PER_STEP]

    def encoded(
        self, members: Iterable[Member], protocol: str | None, encode: Callable[[Member], bytes]
    ) -> list[bytes]:
        """Members as `encode` gives them under `protocol`; it is asked for those that have changed since."""
        return [self._encoded_member(member, protocol, encode) for member in members]

    def _encoded_member(self, member: Member, protocol: str | None, encode: Callable[[Member], bytes]) -> bytes:
        kept = self._encoded.get(member.member_id)
        if kept is None or kept[0] is not member or kept[1] != protocol:
            kept = self._encoded[member.member_id] = (member, protocol, encode(member))
        return kept[2]

    # -- changes

    def copy(self) -> Members:
        """Another one with the same members, to be changed."""
        copied = Members()
        if not self._by_id:
            return copied  # all new groups begin with the same one, and share nothing
        copied._by_id = self._by_id.copy()
        copied._by_instance = self._by_instance.copy()
        copied._supporters = self._supporters.copy()
        copied._encoded = self._encoded
        copied.subscriptions = self.subscriptions
        copied.joins_waiting = self.joins_waiting
        copied.metadata_bytes = self.metadata_bytes
        return copied

    def put(self, member: Member) -> None:
        """Add `member` last, or put it in the place of the one with its id."""
        before = self._by_id.get(member.member_id)
        self._by_id[member.member_id] = member
        if before is None:
            self._note(member)
        elif before.protocols is member.protocols and before.group_instance_id == member.group_instance_id:
            # A rebalance changes all members, and nothing of this.
            self.joins_waiting += (member.join_token is not None) - (before.join_token is not None)
        else:
            self._forget(before)
            self._note(member)

    def remove(self, member_id: str) -> None:
        """Remove a member; no-op when there is none."""
        member = self._by_id.pop(member_id, None)
        self._encoded.pop(member_id, None)
        self.subscriptions.forget(member_id)
        if member is not None:
            self._forget(member)

    def rename(self, old_member_id: str, member: Member) -> None:
        """Put `member`, which has another id, in the place of the one with the old id."""
        self._forget(self._by_id[old_member_id])
        self._encoded.pop(old_member_id, None)
        self.subscriptions.forget(old_member_id)
        self._by_id = dict(
            (member.member_id, member) if name == old_member_id else (name, each) for name, each in self._by_id.items()
        )
        self._note(member)

    def _note(self, member: Member) -> None:
        if member.group_instance_id is not None:
            self._by_instance[member.group_instance_id] = member.member_id
        self._supporters.update({offered.name for offered in member.protocols})
        self.joins_waiting += member.join_token is not None
        self.metadata_bytes += member.metadata_bytes

    def _forget(self, member: Member) -> None:
        if member.group_instance_id is not None:
            self._by_instance.pop(member.group_instance_id, None)
        for name in {offered.name for offered in member.protocols}:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]
        self.joins_waiting -= member.join_token is not None
        self.metadata_bytes -= member.metadata_bytes

"""What handlers of consumer groups have at hand: settings, metadata, assignors; and one input's work on one group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ottla.assign.server import BUILT_IN, ServerAssignor
from ottla.coordinator.decision import AssignPartitions, CancelTimer, LogRecord, Reply, SetTimer, Timer
from ottla.coordinator.facts import (
    Began,
    Fact,
    Gave,
    Gone,
    GroupFacts,
    Joined,
    Lacks,
    LacksNothing,
    Owned,
    Who,
    Why,
)
from ottla.coordinator.group.config import GroupConfig, GroupSettings
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import Member, Target
from ottla.coordinator.group.consumer.states import STATIC_LEAVE_EPOCH, GroupState, MemberState
from ottla.coordinator.group.consumer.topics import TopicHashes, Topics
from ottla.coordinator.group.context import sees_all
from ottla.coordinator.group.kinds import AnyGroup

#: First part of a timer's key; the group id, and for the first two the member id, follow.
SESSION: Final = "session"
REVOKE: Final = "revoke"
REGEX: Final = "regex"
CLASSIC_JOIN: Final = "classic-join"
CLASSIC_SYNC: Final = "classic-sync"


class Failure(NamedTuple):
    """An assignor failed on this epoch of a group; it is asked again for a later epoch, or after `until_ms`."""

    epoch: int
    until_ms: int


@dataclass(slots=True)
class Soft:
    """What is known of a group beside its log; lost with the process, and of no harm then."""

    #: The version of the metadata, and the group epoch, for which the hash was compared last.
    seen: tuple[int, int] | None = None
    #: Regular expressions are being resolved.
    resolving: bool = False
    #: What the member sees for which they are resolved; the others of the group get no more. (As in Kafka.)
    sees: Callable[[str], bool] = sees_all
    #: The token of the job on which an assignor works at present.
    assigning: object | None = None
    failed: Failure | None = None
    #: Members of the classic protocol that were told to join again. Copies share it: nothing of it is undone.
    joining: set[str] = field(default_factory=set)


class Room:
    """See the module."""

    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        settings: GroupSettings,
        assignors: Mapping[str, ServerAssignor] | None = None,
    ) -> None:
        self.config = config
        self.topics = topics
        self.settings = settings
        self.hashes = TopicHashes(topics)
        #: In the order of `group.consumer.assignors`: the first one is the default.
        self.assignors = assignors or {name: make() for name, make in BUILT_IN.items()}
        self._soft: dict[str, Soft] = {}
        #: Makes the group one of another kind when these members have left, in steps; whether it did. See `migration`.
        self.downgrade: Callable[[Draft, Collection[Member]], Generator[None, None, bool]] = _stays

    def soft(self, group_id: str) -> Soft:
        """What is known of the group beside its log. A `Draft` has a copy, for it may be thrown away."""
        return self._soft.get(group_id) or Soft()

    def keep(self, group_id: str, soft: Soft) -> None:
        """This is known of the group now."""
        self._soft[group_id] = soft

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._soft.pop(group_id, None)

    @property
    def default_assignor(self) -> str:
        return next(iter(self.assignors))


def _stays(draft: Draft, leaving: Collection[Member]) -> Generator[None, None, bool]:
    """The group stays what it is."""
    yield from ()
    return False


@dataclass(slots=True)
class Draft:
    """One input's work on one group. Nothing changes in the group; the records say what will.

    Nor does what is known beside the log, until the draft becomes a decision: it may be refused half-way, or fail.
    """

    room: Room
    group: ConsumerGroup
    now_ms: int
    records: list[LogRecord] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    effects: list[AssignPartitions] = field(default_factory=list)
    #: Answers to requests that waited in a group which this one takes the place of.
    replies: list[Reply] = field(default_factory=list)
    #: The group that takes the place of the one that is there: one of another kind.
    target: AnyGroup | None = None
    #: What the input means for the group's history, in order.
    facts: list[Fact] = field(default_factory=list)
    #: What will be known of the group beside its log.
    soft: Soft = field(init=False)

    def __post_init__(self) -> None:
        self.soft = replace(self.room.soft(self.group.group_id))

    # -- history

    def joined(self, member: Member) -> None:
        """A member joins, if it is not there already; a static one may come back, or take another's place."""
        known = self.group.members.get(member.member_id)
        if known is not None and known.member_epoch != STATIC_LEAVE_EPOCH:
            return
        before = self.group.static_member(member.instance_id)
        if before is None or before.member_id == member.member_id:
            self.facts.append(Joined(who(member)))
            return
        self.gone(before, Why.INSTANCE_REPLACED, f"{member.member_id} has its instance id now")
        self.facts.append(Joined(who(member), before.member_id))

    def gone(self, member: Member, why: Why, text: str = "") -> None:
        """A member leaves, or is expelled. One that is away for a while has left already."""
        if member.member_epoch != STATIC_LEAVE_EPOCH or why not in (Why.LEFT, Why.INSTANCE_REPLACED):
            self.facts.append(Gone(who(member), why, text))
        self.facts += [Gave(member.member_id, each) for each in (member.assigned, member.revoking) if each]

    def stepped(self, member: Member, updated: Member, target: Target) -> None:
        """A member goes a step towards its part of the target: it gives up, waits for others, or has it all."""
        if member.revoking and not updated.revoking:
            self.facts.append(Gave(member.member_id, member.revoking))
        elif member.assigned and not updated.revoking and member.assigned != updated.assigned:
            self.facts.append(Gave(member.member_id, member.assigned))
        if updated.state is MemberState.UNRELEASED_PARTITIONS:
            self.facts.append(Lacks(member.member_id, target, updated.assigned))
        elif member.state is MemberState.UNRELEASED_PARTITIONS:
            self.facts.append(LacksNothing(member.member_id))

    def began(self, reason: str) -> None:
        """The group's epoch rises: its members get other partitions, if the target says so."""
        before: dict[str, Owned] | None = None
        if self.group.state in (GroupState.STABLE, GroupState.EMPTY):
            before = {member.member_id: member.assigned for member in self.group.members.values()}
        self.facts.append(Began(reason, before))

    def told(self) -> tuple[GroupFacts, ...]:
        """The facts, for the decision."""
        if not self.facts:
            return ()
        kind = self.group.kind if self.target is None else self.target.kind
        return (GroupFacts(self.group.group_id, kind, self.group.epoch, tuple(self.facts)),)

    # -- answers and timers

    def reply(self, token: int | None, response: object) -> None:
        """Answer a request that waited; None means that nobody did."""
        if token is not None:
            self.replies.append(Reply(token, response))

    def expect_heartbeat(self, member_id: str, timeout_ms: int | None = None) -> None:
        """Fence the member when it is silent for the group's session timeout from now."""
        if timeout_ms is None:
            timeout_ms = self.room.settings.session_timeout_ms(self.group.group_id)
        self.start(SESSION, member_id, timeout_ms)

    def start(self, kind: str, member_id: str, delay_ms: int) -> None:
        """Start (again) one of a member's timers."""
        self.timers.append(SetTimer((kind, self.group.group_id, member_id), delay_ms))

    def stop(self, member_id: str, *kinds: str) -> None:
        """Stop some of a member's timers."""
        self.timers += [CancelTimer((kind, self.group.group_id, member_id)) for kind in kinds]


def who(member: Member) -> Who:
    """The member, as the history names it."""
    return Who(member.member_id, member.instance_id, member.client_id, member.client_host)

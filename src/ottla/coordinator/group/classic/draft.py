"""One input's work on one group: the group as it will be, and the answers, timers and records that go with it.

A draft starts from the present group. It is thrown away unless the shard puts its outcome in place. So the steps of
`rebalance`, `join`, `sync` and `leave` may build on one another.

What goes through all members, such as the end of a rebalance, is not done by the functions that find it due. They leave
it to the end of the input, where it is done in steps: a draft may be half done, because nobody sees it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from ottla.base.limits import CLASSIC_MEMBERS_PER_STEP
from ottla.base.require import require
from ottla.coordinator.decision import CancelTimer, LogRecord, Reply, ReportFault, SetTimer, Timer
from ottla.coordinator.facts import Began, Fact, Gone, GroupFacts, Joined, Owned, Settled, Waits, Who, Why
from ottla.coordinator.group.classic.members import Member, Members
from ottla.coordinator.group.classic.state import CONSUMER_PROTOCOL_TYPE, Group, GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.sync_group import SyncGroupResponse

#: First part of a timer's key; the group id, and for HEARTBEAT the member id, follow.
HEARTBEAT: Final = "heartbeat"
JOIN: Final = "join"
SYNC: Final = "sync"


class Draft:
    """The work of one input on `group`; see the module.

    The members are copied once, at the first change, and then changed in place: an input may change all of them.
    """

    def __init__(self, group: Group, config: GroupConfig, now_ms: int) -> None:
        self.group = group
        #: The group before this input.
        self.before: Final = group
        self._own: Members | None = None
        self.config = config
        self.now_ms = now_ms
        self.records: list[LogRecord] = []
        self.replies: list[Reply] = []
        self.timers: list[Timer] = []
        #: Clients that may join soon; see `arrivals`.
        self.on_their_way = 0
        #: What the operator is told.
        self.reports: list[ReportFault] = []
        #: What the input means for the group's history, in order.
        self.facts: list[Fact] = []
        #: What is left to do at the end of the input, in steps.
        self.rest: Iterator[None] | None = None

    def reply(self, token: int | None, response: object) -> None:
        """Answer a request; None means that nobody waits."""
        if token is not None:
            self.replies.append(Reply(token, response))

    # -- steps

    def then(self, rest: Iterator[None]) -> None:
        """Do this at the end of the input, in steps. Its last step may say so of something else."""
        require(self.rest is None, "an input has two ends")
        self.rest = rest

    def steps(self) -> Iterator[None]:
        """Do what is left."""
        while self.rest is not None:
            rest, self.rest = self.rest, None
            yield from rest

    # -- history

    def told(self) -> list[GroupFacts]:
        """The facts, for the decision and its rest: as many together as one step tells."""
        group, size = self.group, CLASSIC_MEMBERS_PER_STEP
        parts = [tuple(self.facts[begin : begin + size]) for begin in range(0, len(self.facts), size)]
        return [GroupFacts(group.group_id, group.kind, group.generation, part) for part in parts]

    def began(self, reason: str) -> None:
        """A rebalance begins, in a group that was stable or empty, or one that goes on begins once more."""
        before: dict[str, Owned] | None = None
        if self.before.state is GroupState.STABLE:
            before = {member.member_id: member.assignment for member in self.before.members.values()}
        elif self.before.state is GroupState.EMPTY:
            before = {}
        self.facts.append(Began(reason, before))
        # Who waits already has joined in this input.
        self.facts += [Waits(each.member_id) for each in self.group.members.values() if each.join_token is not None]

    def settled(self) -> None:
        """The generation is stable. Only consumers' assignments can be read."""
        members = self.group.members
        readable = self.group.protocol_type == CONSUMER_PROTOCOL_TYPE
        after: dict[str, Owned] = {member.member_id: member.assignment for member in members.values()}
        self.facts.append(
            Settled(self.group.generation, self.group.protocol, len(members), after if readable else None)
        )

    def gone(self, member_ids: Iterable[str], why: Why, text: str | Mapping[str, str] = "") -> None:
        """Members are about to be removed; ids that never joined are not told of. `text`: for all, or by member."""
        for member_id in member_ids:
            member = self.group.members.get(member_id)
            if member is not None:
                own = text if isinstance(text, str) else text.get(member_id, "")
                self.facts.append(Gone(who(member), why, own))

    # -- timers

    def start(self, kind: str, delay_ms: int) -> None:
        """Start (again) one of the group's own timers."""
        self.timers.append(SetTimer((kind, self.group.group_id), delay_ms))

    def stop(self, kind: str) -> None:
        self.timers.append(CancelTimer((kind, self.group.group_id)))

    def expect_heartbeat(self, member_id: str, timeout_ms: int) -> None:
        """Expel the member, or pending member, if it is silent for `timeout_ms` from now."""
        self.timers.append(SetTimer((HEARTBEAT, self.group.group_id, member_id), timeout_ms))

    def expect_no_heartbeat(self, member_id: str) -> None:
        self.timers.append(CancelTimer((HEARTBEAT, self.group.group_id, member_id)))

    # -- members

    def update(self, member: Member) -> None:
        """Put `member` in the place of the one with its id."""
        self._members().put(member)

    def add(self, member: Member) -> None:
        """A new member joins; the first one leads (G4)."""
        self._members().put(member)
        self.facts += (Joined(who(member)), Waits(member.member_id))
        leader = member.member_id if self.group.leader is None else self.group.leader
        self.group = self.group._replace(leader=leader, pending_members=self.group.pending_members - {member.member_id})

    def rename(self, old_member_id: str, member: Member) -> None:
        """Put `member` where the one with the old id was: in the order of members, as leader, among those to sync."""
        self._members().rename(old_member_id, member)
        group = self.group
        to_sync = group.pending_sync
        if old_member_id in to_sync:
            to_sync = to_sync - {old_member_id} | {member.member_id}
        leader = member.member_id if group.leader == old_member_id else group.leader
        self.group = group._replace(pending_sync=to_sync, leader=leader)

    def remove(self, member_ids: Collection[str]) -> None:
        """Remove members and pending members without an answer. The first of those left leads (G4)."""
        if not member_ids:
            return
        members = self._members()
        for member_id in member_ids:
            members.remove(member_id)
        group = self.group
        leader = group.leader
        if leader is not None and leader not in members:
            leader = next(iter(members), None)
        self.group = group._replace(
            leader=leader,
            pending_members=group.pending_members.difference(member_ids),
            pending_sync=group.pending_sync.difference(member_ids),
        )

    def _members(self) -> Members:
        """The draft's own members, copied at the first change."""
        if self.group.members is not self._own:
            self._own = self.group.members.copy()
            self.group = self.group._replace(members=self._own)
        return self._own

    def wait_for_join(self, member: Member, token: int) -> Member:
        """Let `token` wait for the member's join answer.

        If another request of the member waited, it is answered at once: the client has given it up and sent this one.
        (Apache Kafka does not answer it.)
        """
        self.reply(member.join_token, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member = member._replace(join_token=token)
        self.update(member)
        self.facts.append(Waits(member.member_id))
        return member

    def answer_join(self, member: Member, response: JoinGroupResponse) -> None:
        """Answer the member's waiting JoinGroup, if there is one."""
        if member.join_token is not None:
            self.reply(member.join_token, response)
            self.update(member._replace(join_token=None))

    def answer_sync(self, member: Member, response: SyncGroupResponse) -> None:
        """Answer the member's waiting SyncGroup, if there is one, and give it a full session from now on.

        While the member waited, its session could not expire, and its timer may have fired without effect.
        """
        if member.sync_token is not None:
            self.reply(member.sync_token, response)
            self.update(member._replace(sync_token=None))
            self.expect_heartbeat(member.member_id, member.session_timeout_ms)

    def drop(self, member_ids: Collection[str], why: Why, text: str | Mapping[str, str] = "") -> None:
        """Remove members or pending members. Those that wait are told that they are unknown now."""
        self.gone(member_ids, why, text)
        for member_id in member_ids:
            member = self.group.members.get(member_id)
            if member is not None:
                self.answer_join(member, join_error(ErrorCode.UNKNOWN_MEMBER_ID, ""))
                if member.sync_token is not None:
                    self.reply(member.sync_token, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
            self.expect_no_heartbeat(member_id)
        self.remove(member_ids)


def who(member: Member) -> Who:
    """The member, as the history names it."""
    return Who(member.member_id, member.group_instance_id, member.client_id, member.client_host)


def join_error(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """A refusal of JoinGroup."""
    return JoinGroupResponse(error_code=error, member_id=member_id)


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """A refusal of SyncGroup."""
    return SyncGroupResponse(error_code=error)


def as_listed(member: Member, protocol: str | None) -> JoinGroupResponseMember:
    """The member, as the leader is told of it."""
    return JoinGroupResponseMember(member.member_id, member.group_instance_id, member.metadata(protocol))


def join_success(
    group: Group, member_id: str, listed: Iterable[JoinGroupResponseMember] | None = None
) -> JoinGroupResponse:
    """The present generation; only the leader's answer lists the members (G4). `listed`: they are known already."""
    if listed is None and group.leader == member_id:
        listed = (as_listed(member, group.protocol) for member in group.members.values())
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member_id,
        members=tuple(listed or ()),
    )

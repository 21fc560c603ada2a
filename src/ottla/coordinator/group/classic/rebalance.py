"""How a classic group gets from one generation to the next: who must rejoin, for whom the group waits, who is dropped.

`PreparingRebalance` ends when every member and every pending member has joined, or when the longest rebalance timeout
of the members has passed. Members that have not joined by then are dropped; static members stay until their session
ends. A group that was empty waits for `group.initial.rebalance.delay.ms`, and for as long again when a member comes
meanwhile, up to the rebalance timeout. So an application that starts ten members costs one rebalance and not ten.
Without such a delay it waits for clients that are on their way, see `arrivals`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.base.limits import ARRIVAL_PAUSE_MS, ARRIVAL_TOTAL_MS, CLASSIC_MEMBERS_PER_STEP
from ottla.base.require import require
from ottla.base.words import listing
from ottla.coordinator.decision import Reply
from ottla.coordinator.facts import Emptied, Why
from ottla.coordinator.group.classic.draft import JOIN, SYNC, Draft, as_listed, join_success, sync_error
from ottla.coordinator.group.classic.records import group_record, subscribed_topics, subscribed_topics_in_steps
from ottla.coordinator.group.classic.state import TRANSITIONS, GroupState, InitialDelay
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponseMember


def can_rebalance(state: GroupState) -> bool:
    """Whether a rebalance can begin in this state. In PreparingRebalance it has begun already."""
    return GroupState.PREPARING_REBALANCE in TRANSITIONS[state]


def rebalance(draft: Draft, reason: str) -> None:
    """Something changed: begin a rebalance, or complete the present one if nobody is missing."""
    if can_rebalance(draft.group.state):
        prepare(draft, reason)
    else:
        complete_if_possible(draft)


def prepare(draft: Draft, reason: str, error: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS) -> None:
    """Ask all members to rejoin. `reason` is for people. Who waits for an assignment is answered with `error`."""
    if draft.group.state is GroupState.COMPLETING_REBALANCE:
        draft.then(_give_up(draft, reason, error))
    else:
        _prepare(draft, reason)


def _give_up(draft: Draft, reason: str, error: ErrorCode) -> Iterator[None]:
    """This generation gets no assignment: answer all members that wait for it with `error`, and rebalance again."""
    for part in draft.group.members.parts():
        for member in part:
            without = member._replace(assignment=b"")
            if member.sync_token is None:
                draft.update(without)
            else:
                draft.answer_sync(without, sync_error(error))
        yield
    _prepare(draft, reason)


def _prepare(draft: Draft, reason: str) -> None:
    draft.stop(SYNC)
    draft.began(reason)
    initial: InitialDelay | None = None
    if draft.group.state is GroupState.EMPTY:
        initial = _initial_delay(draft)
        draft.start(JOIN, initial.delay_ms)
    group = draft.group.with_state(GroupState.PREPARING_REBALANCE, draft.now_ms)
    draft.group = group._replace(pending_sync=frozenset(), initial_delay=initial, rebalance_reason=reason)
    if initial is not None:
        return
    if draft.group.all_joined():
        complete(draft)
    else:
        draft.start(JOIN, draft.group.rebalance_timeout_ms())


def _initial_delay(draft: Draft) -> InitialDelay:
    delay_ms = draft.config.group_initial_rebalance_delay_ms
    if draft.on_their_way and delay_ms < ARRIVAL_PAUSE_MS:
        return InitialDelay(ARRIVAL_PAUSE_MS, ARRIVAL_TOTAL_MS - ARRIVAL_PAUSE_MS, for_arrivals=True)
    return InitialDelay(delay_ms, max(draft.group.rebalance_timeout_ms() - delay_ms, 0))


def complete_if_possible(draft: Draft) -> None:
    """Complete the rebalance when nobody is missing, unless its initial delay still runs."""
    group, initial = draft.group, draft.group.initial_delay
    waits = initial is not None and not (initial.for_arrivals and draft.on_their_way == 0)
    if group.state is GroupState.PREPARING_REBALANCE and not waits and group.all_joined():
        complete(draft)


def members_removed(draft: Draft, reason: str) -> None:
    """A member or pending member has left or is expelled: rebalance without it, or stop waiting for it."""
    match draft.group.state:
        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            prepare(draft, reason)
        case GroupState.PREPARING_REBALANCE if draft.group.all_joined():
            complete(draft)
        case _:
            pass


def join_timer(draft: Draft) -> None:
    """The time to join is over, or the initial delay is."""
    initial = draft.group.initial_delay
    if initial is None or not initial.member_added or initial.remaining_ms == 0:
        complete(draft)
        return
    full_ms = ARRIVAL_PAUSE_MS if initial.for_arrivals else draft.config.group_initial_rebalance_delay_ms
    delay_ms = min(full_ms, initial.remaining_ms)
    remaining_ms = max(initial.remaining_ms - initial.delay_ms, 0)
    again = InitialDelay(delay_ms, remaining_ms, for_arrivals=initial.for_arrivals)
    draft.group = draft.group._replace(initial_delay=again)
    draft.start(JOIN, delay_ms)


def complete(draft: Draft) -> None:
    """Drop members that have not joined, and begin the next generation."""
    draft.then(_complete(draft))


def _complete(draft: Draft) -> Iterator[None]:
    draft.stop(JOIN)
    if not draft.group.all_joined():
        missing = [m.member_id for m in draft.group.members.values() if m.join_token is None and not m.is_static]
        yield from _drop(draft, missing, Why.REBALANCE_TIMEOUT, "did not join again in time")
    if draft.group.members and not _elect_leader(draft):
        # There are only static members, and none has come back: the group waits until their sessions end.
        draft.start(JOIN, draft.group.rebalance_timeout_ms())
        return
    group = draft.group._replace(generation=draft.group.generation + 1, initial_delay=None, pending_sync=frozenset())
    if not group.members:
        group = group._replace(protocol=None, subscribed_topics=subscribed_topics(group))
        draft.group = group.with_state(GroupState.EMPTY, draft.now_ms)
        draft.facts.append(Emptied(draft.group.generation))
        draft.records.append(group_record(draft.group))
        return
    group = group._replace(protocol=group.elected_protocol(), pending_sync=frozenset(group.members))
    topics = yield from subscribed_topics_in_steps(group)
    group = group._replace(subscribed_topics=topics)
    draft.group = group.with_state(GroupState.COMPLETING_REBALANCE, draft.now_ms)
    yield from _answer_joins(draft)


def _drop(draft: Draft, member_ids: Sequence[str], why: Why, text: str) -> Iterator[None]:
    for begin in range(0, len(member_ids), CLASSIC_MEMBERS_PER_STEP):
        draft.drop(member_ids[begin : begin + CLASSIC_MEMBERS_PER_STEP], why, text)
        yield


def _elect_leader(draft: Draft) -> bool:
    """Keep the leader if it has joined, else take the first member that has. False when none has."""
    group = draft.group
    if group.leader is not None and group.members[group.leader].join_token is not None:
        return True
    joined = next((m.member_id for m in group.members.values() if m.join_token is not None), None)
    if joined is None:
        return False
    draft.group = group._replace(leader=joined)
    return True


def _answer_joins(draft: Draft) -> Iterator[None]:
    """Tell every member the new generation, the leader first, and give all the rebalance timeout to send SyncGroup."""
    group, listed = draft.group, list[JoinGroupResponseMember]()
    leader, place = group.members[group.leader or ""], len(draft.replies)
    for part in draft.group.members.parts():
        for member in part:
            listed.append(as_listed(member, group.protocol))
            if member is not leader:
                draft.reply(member.join_token, join_success(group, member.member_id))
            if member.join_token is not None or member.is_new:
                draft.update(member._replace(join_token=None, is_new=False))
            draft.expect_heartbeat(member.member_id, member.session_timeout_ms)
        yield
    require(leader.join_token is not None, f"group {group.group_id}: its leader has not joined")
    if leader.join_token is not None:
        draft.replies.insert(place, Reply(leader.join_token, join_success(group, leader.member_id, listed)))
    draft.start(SYNC, draft.group.rebalance_timeout_ms())


def sync_timer(draft: Draft) -> None:
    """Drop members that have joined this generation and did not fetch their assignment in time."""
    if draft.group.pending_sync:
        draft.then(_sync_timer(draft))


def _sync_timer(draft: Draft) -> Iterator[None]:
    late = sorted(draft.group.pending_sync)
    yield from _drop(draft, late, Why.SYNC_TIMEOUT, "no SyncGroup in time")
    prepare(draft, f"no SyncGroup in time from {listing(late)}")

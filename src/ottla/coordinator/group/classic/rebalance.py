"""How a classic group gets from one generation to the next: who must rejoin, for whom the group waits, who is dropped.

`PreparingRebalance` ends when every member and every pending member has joined, or when the longest rebalance timeout
of the members has passed. Members that have not joined by then are dropped; static members stay until their session
ends. A group that was empty waits for `group.initial.rebalance.delay.ms`, and for as long again when a member comes
meanwhile, up to the rebalance timeout. So an application that starts ten members costs one rebalance and not ten.
Without such a delay it waits for clients that are on their way, see `arrivals`.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.base.limits import ARRIVAL_PAUSE_MS, ARRIVAL_TOTAL_MS
from ottla.coordinator.facts import Emptied, Why
from ottla.coordinator.group.classic.draft import JOIN, SYNC, Draft, join_success, sync_error
from ottla.coordinator.group.classic.records import group_record, subscribed_topics
from ottla.coordinator.group.classic.state import TRANSITIONS, GroupState, InitialDelay
from ottla.wire.errors import ErrorCode


def can_rebalance(state: GroupState) -> bool:
    """Whether a rebalance can begin in this state. In PreparingRebalance it has begun already."""
    return GroupState.PREPARING_REBALANCE in TRANSITIONS[state]


def rebalance(draft: Draft, reason: str) -> None:
    """Something changed: begin a rebalance, or complete the present one if nobody is missing."""
    if can_rebalance(draft.group.state):
        prepare(draft, reason)
    else:
        complete_if_possible(draft)


def prepare(draft: Draft, reason: str) -> None:
    """Ask all members to rejoin. `reason` is for people."""
    group = draft.group
    if group.state is GroupState.COMPLETING_REBALANCE:
        answer_all_syncs(draft, ErrorCode.REBALANCE_IN_PROGRESS)
    draft.stop(SYNC)
    draft.began(reason)
    initial: InitialDelay | None = None
    if group.state is GroupState.EMPTY:
        initial = _initial_delay(draft)
        draft.start(JOIN, initial.delay_ms)
    group = draft.group.with_state(GroupState.PREPARING_REBALANCE, draft.now_ms)
    draft.group = replace(group, pending_sync=frozenset(), initial_delay=initial, rebalance_reason=reason)
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
    draft.group = replace(draft.group, initial_delay=again)
    draft.start(JOIN, delay_ms)


def complete(draft: Draft) -> None:
    """Drop members that have not joined, and begin the next generation."""
    draft.stop(JOIN)
    missing = [m.member_id for m in draft.group.members.values() if m.join_token is None and not m.is_static]
    draft.drop(missing, Why.REBALANCE_TIMEOUT, "did not join again in time")
    if draft.group.members and not _elect_leader(draft):
        # There are only static members, and none has come back: the group waits until their sessions end.
        draft.start(JOIN, draft.group.rebalance_timeout_ms())
        return
    group = replace(draft.group, generation=draft.group.generation + 1, initial_delay=None, pending_sync=frozenset())
    if group.members:
        group = replace(group, protocol=group.elected_protocol()).with_state(
            GroupState.COMPLETING_REBALANCE, draft.now_ms
        )
    else:
        group = replace(group, protocol=None).with_state(GroupState.EMPTY, draft.now_ms)
    draft.group = replace(group, subscribed_topics=subscribed_topics(group))
    if group.members:
        _answer_joins(draft)
    else:
        draft.facts.append(Emptied(draft.group.generation))
        draft.records.append(group_record(draft.group))


def _elect_leader(draft: Draft) -> bool:
    """Keep the leader if it has joined, else take the first member that has. False when none has."""
    group = draft.group
    if group.leader is not None and group.members[group.leader].join_token is not None:
        return True
    joined = next((m.member_id for m in group.members.values() if m.join_token is not None), None)
    if joined is None:
        return False
    draft.group = replace(group, leader=joined)
    return True


def _answer_joins(draft: Draft) -> None:
    """Tell every member the new generation, and give all of them the rebalance timeout to send SyncGroup."""
    draft.group = replace(draft.group, pending_sync=frozenset(draft.group.members))
    group = draft.group
    for member in list(group.members.values()):
        draft.reply(member.join_token, join_success(group, member.member_id))
        if member.join_token is not None or member.is_new:
            draft.update(member._replace(join_token=None, is_new=False))
        draft.expect_heartbeat(member.member_id, member.session_timeout_ms)
    draft.start(SYNC, draft.group.rebalance_timeout_ms())


def answer_all_syncs(draft: Draft, error: ErrorCode) -> None:
    """This generation gets no assignment: answer all members that wait for it with `error`."""
    for member in list(draft.group.members.values()):
        without = member._replace(assignment=b"")
        if member.sync_token is None:
            draft.update(without)
        else:
            draft.answer_sync(without, sync_error(error))


def sync_timer(draft: Draft) -> None:
    """Drop members that have joined this generation and did not fetch their assignment in time."""
    if not draft.group.pending_sync:
        return
    late = sorted(draft.group.pending_sync)
    draft.drop(late, Why.SYNC_TIMEOUT, "no SyncGroup in time")
    prepare(draft, f"no SyncGroup in time from {', '.join(late)}")

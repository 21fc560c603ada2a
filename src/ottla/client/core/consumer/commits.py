"""Commits of positions: when the user asks, in the background, and before partitions are given up (SPEC O1, O4).

One commit is on its way at a time, in the order in which they were begun: an older one never overtakes a newer one. A
commit belongs to the era of the membership in which it was begun. When the member has joined again meanwhile, the
commit is still good if the member has had all its partitions all the time, as in a cooperative rebalance. Otherwise it
fails.

A commit that nobody waits for any more (its time is over, or its caller was interrupted) may still be carried out. It
is given up before the next one is sent, so that it cannot be sent late and undo the newer one.
"""

from collections import deque
from collections.abc import Callable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.core import intents
from ottla.client.core.backoff import Backoff
from ottla.client.core.consumer.answers import Next, meaning_of
from ottla.client.core.consumer.era import Call, Ticket
from ottla.client.core.consumer.member import GroupMember
from ottla.client.core.consumer.positions import PartitionState
from ottla.client.core.consumer.shared import NOBODY_WAITS, Shared
from ottla.client.core.offset_requests import LAST_VERSION_WITH_NAMES, commit_request
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.errors import ClientError, CommitFailedError, KafkaError, RequestTimeoutError, code_of
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import OffsetCommitResponse

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
#: Called at the end of an asynchronous commit: with the offsets, and with the error, or None.
OnCommit = Callable[[Offsets, Exception | None], object]
#: Called at the end of a commit: with the error, or None, and with the time.
Done = Callable[[Exception | None, float], None]

_MOVED_ON = (
    "the offsets were not committed: this consumer is not part of the group's current generation. Either a rebalance "
    "took its partitions, or poll() was not called within max.poll.interval.ms. Call poll(): the consumer joins again"
)
_NO_MEMBER = (
    "the offsets were not committed: group %s has members, and this consumer is none of them, because it does not "
    "subscribe(). Give it a group.id with which nobody subscribes, or let it subscribe() instead of assign()"
)
#: What an answer to a commit says of the member.
_OF_THE_MEMBER = frozenset({Next.START_OVER, Next.REJOIN, Next.LEARN_EPOCH})


class _Commit:
    """One commit on its way."""

    def __init__(self, offsets: Offsets, done: Done, backoff: Backoff, deadline_s: float | None) -> None:
        self.offsets = offsets
        self.done: Done | None = done
        self.backoff = backoff
        #: Until when it is tried again; None for a single attempt.
        self.deadline_s = deadline_s
        self.not_before_s = 0.0
        self.last: ClientError | None = None
        #: The user's call that waits for it, if there is one.
        self.call: object = None
        #: When it was begun: the membership's era, and for each partition the assignment in which it came.
        self.membership = 0
        self.assignments: dict[TopicPartition, int] = {}

    def settle(self, error: Exception | None, now_s: float) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(error, now_s)


class Commits:
    """All commits of one consumer."""

    def __init__(self, shared: Shared, member: GroupMember, heard: Callable[[ErrorCode, float], bool]) -> None:
        """`heard` gets a code that is about the membership. It returns whether that says anything about it as it is."""
        self._shared = shared
        self._member = member
        self._heard = heard
        config = shared.config
        self._enabled = config.enable_auto_commit and config.group_id is not None
        self._interval_s = config.auto_commit_interval_ms / 1000
        #: When the next automatic commit is due; None if there are none.
        self.due_s: float | None = 0.0 if self._enabled else None
        self._queue: deque[_Commit] = deque()
        #: The commit that is on its way, which is always the first of the queue, and the ticket of its request.
        self._asked: _Commit | None = None
        self._ticket: Ticket | None = None
        self._automatic: _Commit | None = None

    # what is asked for

    def sync(self, call: object, offsets: Offsets | None, timeout_ms: float, now_s: float) -> None:
        """Commit `offsets`, or all positions. Tries again until the time is over; then `call` ends."""
        finish: Done = lambda error, now_s: self._shared.intend(intents.Finish(call, error=error))  # noqa: E731
        self._add(offsets, finish, now_s + timeout_ms / 1000).call = call
        self.advance(now_s)

    def abandoned(self, call: object) -> None:
        """Nobody waits for `call` any more: its commit is not tried again."""
        for commit in self._queue:
            if commit.call is call:
                commit.done = None

    def in_background(self, offsets: Offsets | None, callback: OnCommit | None, now_s: float) -> None:
        """Commit once; `callback` is called by a later poll."""
        self._begin_in_background(offsets, callback)
        self.advance(now_s)

    def _begin_in_background(self, offsets: Offsets | None, callback: OnCommit | None) -> _Commit:
        wanted = self._shared.positions.committable() if offsets is None else dict(offsets)

        def done(error: Exception | None, now_s: float) -> None:
            if error is not None:
                level = intents.DEBUG if callback is not None else intents.WARNING
                self._shared.say(level, "commit failed: %s", error)
            if callback is not None:
                self._shared.call_user(NOBODY_WAITS, callback, wanted, error)

        return self._add(wanted, done, None)

    def before_giving_up(self, over: Callable[[float], None], now_s: float) -> None:
        """Commit before a rebalance or the end, with `enable.auto.commit`. Also waits for the commits before.

        Positions in topics that were deleted are left out: they would be refused until the time is over.
        Calls `over` after a third of `session.timeout.ms` at the latest. A failure is logged: records are read again.
        """

        def done(error: Exception | None, now_s: float) -> None:
            if error is not None:
                text = "positions were not committed before a rebalance or the end, so records may be read again: %s"
                self._shared.say(intents.WARNING, text, error)
            over(now_s)

        is_heard = self._member.in_generation or not self._shared.subscription.by_group
        deadline_s = now_s + self._shared.config.session_timeout_ms / 3000
        wanted: Offsets = {}
        if self._enabled and is_heard:
            topics = self._shared.snapshot.topics
            wanted = {tp: at for tp, at in self._shared.positions.committable().items() if tp.topic in topics}
        self._add(wanted, done, deadline_s)
        self.advance(now_s)

    def before_leaving(self, over: Callable[[float], None], now_s: float) -> None:
        """Like `before_giving_up`, but for the last time: commits that have not ended by then fail."""

        def end(now_s: float) -> None:
            for commit in self._queue:
                commit.settle(_too_late(commit), now_s)
            over(now_s)

        self.before_giving_up(end, now_s)

    def automatic(self, now_s: float, *, is_stable: bool) -> None:
        """Commit what earlier polls have returned, if that is due. Only in poll, when nobody takes records."""
        if self.due_s is None or now_s < self.due_s:
            return
        self.due_s = now_s + self._interval_s
        is_under_way = self._automatic is not None and self._automatic.done is not None
        if is_stable and not is_under_way and self._shared.positions.committable():
            self._automatic = self._begin_in_background(None, None)
            self.advance(now_s)

    def begin(self, now_s: float) -> None:
        """Begin the first interval of automatic commits."""
        if self.due_s is not None:
            self.due_s = now_s + self._interval_s

    def _add(self, offsets: Offsets | None, done: Done, deadline_s: float | None) -> _Commit:
        shared = self._shared
        wanted = shared.positions.committable() if offsets is None else dict(offsets)
        commit = _Commit(wanted, done, shared.backoff(), deadline_s)
        commit.membership = shared.eras.membership
        states = ((tp, shared.positions.get(tp)) for tp in wanted)
        commit.assignments = {tp: state.assignment for tp, state in states if state is not None}
        self._queue.append(commit)
        return commit

    # one after the other

    def advance(self, now_s: float) -> float | None:
        """Send the next commit, and fail those whose time is over. Returns when to look again."""
        while self._queue:
            commit = self._queue[0]
            if self._asked is not None:
                if commit.done is not None or len(self._queue) == 1:
                    break
                self._shared.intend(intents.GiveUp(self._ticket))
                self._asked = None
            elif commit.done is None or not commit.offsets:
                self._over(commit, None, now_s)
            elif commit.not_before_s <= now_s:
                self._attempt(commit, now_s)
            else:
                break
        for commit in list(self._queue):
            if commit.deadline_s is not None and now_s >= commit.deadline_s:
                commit.settle(_too_late(commit), now_s)
        waiting = [c.deadline_s for c in self._queue if c.deadline_s is not None and c.done is not None]
        if self._asked is None and self._queue:
            waiting.append(self._queue[0].not_before_s)
        return min(waiting, default=None)

    def _attempt(self, commit: _Commit, now_s: float) -> None:
        if not self._is_good(commit):
            self._over(commit, CommitFailedError(_MOVED_ON), now_s)
            return
        shared = self._shared
        self._asked = commit
        ticket = self._ticket = shared.eras.of_member(Call.COMMIT, commit)
        request = commit_request(self._member.metadata, commit.offsets)
        shared.ask_coordinator(ticket, ApiKey.OFFSET_COMMIT, request, cap=LAST_VERSION_WITH_NAMES)

    def _is_good(self, commit: _Commit) -> bool:
        """Whether this member may still commit it."""
        shared = self._shared
        if not shared.subscription.by_group:
            return True
        if not self._member.in_generation:
            return False
        if commit.membership == shared.eras.membership:
            return True
        states = [shared.positions.get(tp) for tp in commit.offsets]
        return all(state is not None and _came_in(commit, state) for state in states)

    def answered(self, ticket: Ticket, answer: OffsetCommitResponse, now_s: float) -> None:
        """A commit was answered, in any era. What the answer says of the membership counts only in its era."""
        if ticket is not self._ticket or self._asked is None:
            return  # it was given up
        commit, self._asked = self._asked, None
        refused = [
            (code_of(p.error_code), f"group {self._shared.group_id}, {topic.name}-{p.partition_index}")
            for topic in answer.topics
            for p in topic.partitions
            if p.error_code != ErrorCode.NONE
        ]
        if not refused:
            self._over(commit, None, now_s)
            return
        code, what = refused[0]
        meaning = meaning_of(Call.COMMIT, code)
        error: ClientError = KafkaError.of(code, what)
        if meaning is Next.FIND_COORDINATOR:
            self._shared.find_coordinator()
        by_group = self._shared.subscription.by_group
        of_the_member = meaning in _OF_THE_MEMBER and by_group
        counts = of_the_member and self._shared.eras.holds(ticket) and self._heard(code, now_s)
        if of_the_member and not counts and self._is_good(commit):  # it was refused for the generation before this one
            self._queue_again(commit, error, now_s)
            return
        again = meaning in (Next.RETRY, Next.FIND_COORDINATOR, Next.LEARN_EPOCH)
        if meaning is Next.START_OVER or (of_the_member and meaning is Next.LEARN_EPOCH and commit.deadline_s is None):
            error = CommitFailedError(_MOVED_ON if by_group else _NO_MEMBER % self._shared.group_id)
            error.__cause__ = KafkaError.of(code, what)
        self._failed(commit, error, now_s, again=again)

    def unanswered(self, ticket: Ticket, error: ClientError, now_s: float) -> None:
        """A commit got no answer. Perhaps it was carried out; to repeat it does no harm."""
        if ticket is self._ticket and self._asked is not None:
            commit, self._asked = self._asked, None
            self._failed(commit, error, now_s, again=error.retriable)

    def _failed(self, commit: _Commit, error: ClientError, now_s: float, *, again: bool) -> None:
        if again and commit.deadline_s is not None and commit.done is not None:
            self._queue_again(commit, error, now_s)
        else:
            self._over(commit, error, now_s)

    def _queue_again(self, commit: _Commit, error: ClientError, now_s: float) -> None:
        commit.last = error
        commit.not_before_s = now_s + commit.backoff.next_ms() / 1000

    def _over(self, commit: _Commit, error: Exception | None, now_s: float) -> None:
        self._queue.popleft()
        commit.settle(error, now_s)


def _came_in(commit: _Commit, state: PartitionState) -> bool:
    return commit.assignments.get(state.tp) == state.assignment


def _too_late(commit: _Commit) -> RequestTimeoutError:
    why = f": {commit.last}" if commit.last is not None else ""
    error = RequestTimeoutError(f"the commit did not succeed within its time-out{why}")
    error.__cause__ = commit.last
    return error

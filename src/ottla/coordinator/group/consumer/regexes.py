"""Regular expressions that members subscribe to: which topics they match, and when that is looked up again.

RE2 matches them (ADR 0011). They are resolved beside the heartbeats, all of a group together, so that one change of the
topics raises the group's epoch once. The result is a record for each, so that the next coordinator knows it too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from enum import Enum, auto
from typing import Final, TypeAlias

from ottla.base.clock import lasts
from ottla.base.limits import MAX_MATCH_STEPS, MAX_NAMES_AT_ONCE
from ottla.base.patterns import PatternError, compile_pattern
from ottla.base.steps import Pace
from ottla.coordinator.decision import LogRecord, SetTimer
from ottla.coordinator.group.consumer.errors import RefusedError
from ottla.coordinator.group.consumer.group import ConsumerGroup, Resolved
from ottla.coordinator.group.consumer.member import Member
from ottla.coordinator.group.consumer.records import epoch_record, regex_record
from ottla.coordinator.group.consumer.room import REGEX, Draft
from ottla.coordinator.group.consumer.topics import Topics
from ottla.wire.errors import ErrorCode

#: A group's regular expressions are looked up again after this time at the earliest (Kafka's own figure).
_SHORTEST_INTERVAL_MS: Final = 10_000


class RegexChange(Enum):
    """What a request changes about the member's regular expression."""

    NONE = auto()
    #: It is another one, whose topics are not known yet.
    CHANGED = auto()
    #: It is another one, whose topics are known, or none any more.
    KNOWN = auto()


def update_regex(draft: Draft, member: Member, updated: Member, sees: Callable[[str], bool]) -> RegexChange:
    """Take over the member's regular expression, and see whether the group's must be resolved again.

    They match only topics that the member `sees`.

    RefusedError (INVALID_REGULAR_EXPRESSION) when it is none.
    """
    group, wanted = draft.group, False
    before, now = member.topic_regex, updated.topic_regex
    change = RegexChange.KNOWN if _forget_unused(draft, now) else RegexChange.NONE
    if before != now:
        change = RegexChange.CHANGED
        if before and group.regex_members[before] == 1:
            draft.records.append(regex_record(group.group_id, before, None))
        if now:
            if not group.regex_members[now]:
                _check(now)
                wanted = True
            elif now in group.regexes:
                change = RegexChange.KNOWN
        elif before:
            change = RegexChange.KNOWN
    if _is_due(draft, member, updated, wanted=wanted):
        draft.soft.resolving, draft.soft.sees = True, sees
        draft.timers.append(SetTimer((REGEX, group.group_id), 0))
    return change


def _forget_unused(draft: Draft, wanted: str | None) -> bool:
    """Delete what a log may still say of regular expressions that nobody uses; whether there was any.

    Nobody writes such a log today. Their topics would count as topics that the group reads.
    """
    group = draft.group
    unused = group.regexes.keys() - group.regex_members.keys() - {wanted} if group.regexes else set()
    draft.records += [regex_record(group.group_id, each, None) for each in sorted(unused)]
    return bool(unused)


def _check(regex: str) -> None:
    try:
        compile_pattern(regex)
    except PatternError as fault:
        raise RefusedError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {fault}.",
        ) from None


def _is_due(draft: Draft, member: Member, updated: Member, *, wanted: bool) -> bool:
    """Whether the group's regular expressions are to be resolved now."""
    group = draft.group
    if not (wanted or group.regex_members) or draft.soft.resolving:
        return False
    last = group.last_resolved()
    if last is not None and lasts(last.timestamp_ms, _SHORTEST_INTERVAL_MS + 1, draft.now_ms):
        return False
    used = Counter(group.regex_members)
    for each, step in ((member.topic_regex, -1), (updated.topic_regex, 1)):
        if each:
            used[each] += step
    used = +used
    due = (
        wanted
        or not used.keys() <= group.regexes.keys()
        or (0 if last is None else last.version) < draft.room.topics.created_version
        or last is None
        or not lasts(last.timestamp_ms, draft.room.config.regex_refresh_interval_ms + 1, draft.now_ms)
    )
    return due and bool(used)


class Resolution:
    """All regular expressions of a group against all topics, in turns of the event loop.

    A turn compiles one of them at most, which exists only until all names have been looked at. To keep them would take
    memory, and compiling one again costs less than matching it with the names of many topics.
    """

    def __init__(self, group: ConsumerGroup, topics: Topics, now_ms: int, sees: Callable[[str], bool]) -> None:
        self._sees = sees
        self._names = list(topics.names())
        self._found: dict[str, set[str]] = {regex: set() for regex in group.regex_members}
        self._version = topics.version
        self._started_ms = now_ms
        self._turns = self._match()

    def go_on(self) -> bool:
        """Look at some more names; whether all have been looked at."""
        return next(self._turns, False) is False

    def _match(self) -> Iterator[bool]:
        """Look at all names for one regular expression after the other; a turn's work in each step."""
        seen: dict[str, bool] = {}
        for place, (regex, found) in enumerate(self._found.items()):
            if place:
                yield True
            try:
                pattern = compile_pattern(regex)
            except PatternError:  # written by another coordinator, whose RE2 takes more; it matches nothing here
                continue
            steps = 0
            for name in self._names:
                if steps >= MAX_MATCH_STEPS:
                    yield True
                    steps = 0
                steps += pattern.steps(name)
                if pattern.matches(name):
                    if name not in seen:
                        seen[name] = self._sees(name)
                    if seen[name]:
                        found.add(name)

    def results(self) -> Iterator[tuple[str, Resolved]]:
        """The topics of each regular expression."""
        for regex, names in self._found.items():
            yield regex, Resolved(frozenset(names), self._version, self._started_ms)


#: Regular expressions of a group, and what they match.
Found: TypeAlias = list[tuple[str, Resolved]]


def take_over(draft: Draft, resolution: Resolution) -> Generator[None, None, list[Found]]:
    """Write what was found; the group's epoch rises when that changes what it subscribes to. In steps if it is many.

    Returns what has to be written before the draft, each part in a batch of its own. If the draft is not written then,
    some regular expressions are resolved in the log, or newly, and others not: a heartbeat soon has all of them
    resolved. What has changed is written last. So the draft has some of it, and then the epoch rises that time.
    """
    group, pace = draft.group, Pace(MAX_NAMES_AT_ONCE)
    by_regex, known, changed = Counter(group.by_regex), Found(), Found()
    for regex, resolved in resolution.results():
        if not group.regex_members[regex]:
            continue
        before = group.regexes.get(regex, Resolved()).topics
        if before == resolved.topics:
            known.append((regex, resolved))
        else:
            changed.append((regex, resolved))
            by_regex.subtract(before)
            by_regex.update(resolved.topics)
        if pace.is_over(len(resolved.topics)):
            yield
    metadata_hash = yield from draft.room.hashes.steps_of_group(frozenset(group.by_name) | frozenset(+by_regex))
    parts = _in_parts(known + changed)
    if parts:
        draft.records += found_records(group, parts.pop())
    if changed or metadata_hash != group.metadata_hash:
        draft.began("the topics that its regular expressions match have changed")
        draft.records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
    return parts


def _in_parts(found: Found) -> list[Found]:
    parts, pace, is_new = list[Found](), Pace(MAX_NAMES_AT_ONCE), True
    for each in found:
        if is_new:
            parts.append(Found())
        parts[-1].append(each)
        is_new = pace.is_over(len(each[1].topics))
    return parts


def found_records(group: ConsumerGroup, found: Found) -> list[LogRecord]:
    """A record for each of these regular expressions."""
    return [regex_record(group.group_id, regex, resolved) for regex, resolved in found]

"""`check_history`: all checkers, and the names of what they find."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from ottla.testing.history.anomaly import Anomaly
from ottla.testing.history.builder import History
from ottla.testing.history.commits import commit_ahead, commit_regression, unfenced_commit
from ottla.testing.history.deletions import deleted_read
from ottla.testing.history.evidence import Evidence
from ottla.testing.history.facts import Event
from ottla.testing.history.lines import HistoryError, check_events
from ottla.testing.history.mentions import Mentions
from ottla.testing.history.offsets import inconsistent_offsets
from ottla.testing.history.owners import two_owners
from ottla.testing.history.pipelines import exactly_once
from ottla.testing.history.polls import polled_in_order, unseen
from ottla.testing.history.reads import aborted_read, intermediate_read, precommitted_read, vanished_read
from ottla.testing.history.settled import never_settled
from ottla.testing.history.transactions import stuck_lso, whole_transactions
from ottla.testing.history.writes import (
    duplicate,
    lost_write,
    nonmonotonic_send,
    refused_write,
    unknown_record,
)

#: What each name means. Where Jepsen's Kafka workload has a name for it, we use that.
ANOMALIES: Final[Mapping[str, str]] = {
    "lost-write": "a record was acknowledged, or its transaction committed, and it is not there",
    "refused-write": "a record is there, although its send has failed for sure",
    "duplicate": "a record is there more often than it was sent; or an input of a pipeline has become two outputs",
    "nonmonotonic-send": "a partition has records of one producer in another order than they were sent",
    "unknown-record": "a record is there that nobody has sent",
    "inconsistent-offsets": "clients were told of different records at one offset",
    "torn-transaction": "only a part of a transaction is committed",
    "stuck-lso": "a transaction never ends, so that read_committed consumers never get beyond it",
    "aborted-read": "a consumer was given a record that is not committed (G1a), or a transaction is committed "
    "that its user was told is aborted, or that nobody has asked to commit",
    "precommitted-read": "a read_committed consumer was given a record before anybody asked for the commit",
    "intermediate-read": "read_committed readers were given a part of a transaction, and read past the rest (G1b)",
    "vanished-read": "a consumer was given a record that is not in the log",
    "deleted-read": "a consumer was given a record that had been deleted before it began to read",
    "nonmonotonic-poll": "a consumer that kept its partition went back",
    "poll-skip": "a consumer that kept its partition left out records",
    "unseen": "a group has read to the end, and none of its members was given a record",
    "two-owners": "two members own a partition in one generation (or member epoch)",
    "commit-regression": "a commit of an older generation came after one of a newer one; or a committed offset is gone",
    "commit-ahead": "a group has committed an offset beyond records that none of its members was given",
    "unfenced-commit": "a transaction got a group's offsets without the member's generation",
    "unprocessed": "an input of a pipeline has become no output, or its offset is not committed",
    "never-settled": "a send, the end of a transaction or another call has no outcome",
}

_CHECKERS: Final[tuple[Callable[[Evidence], Iterator[Anomaly]], ...]] = (
    lost_write,
    refused_write,
    duplicate,
    nonmonotonic_send,
    never_settled,
    unknown_record,
    inconsistent_offsets,
    whole_transactions,
    stuck_lso,
    exactly_once,
    vanished_read,
    aborted_read,
    precommitted_read,
    intermediate_read,
    deleted_read,
    polled_in_order,
    unseen,
    two_owners,
    commit_regression,
    commit_ahead,
    unfenced_commit,
)


def check_history(history: History | Collection[Event], *, ignore: Collection[str] = ()) -> list[Anomaly]:
    """Everything that must not have happened, and did; an empty list if all is well.

    `ignore` takes names (keys of `ANOMALIES`) that the test does not want to hear of: say, "nonmonotonic-send" of a
    producer without idempotence. ValueError for a name that is none, HistoryError for what is no history. What the
    history does not tell is not looked at: without the final logs the consumers' polls stand for them. Time and memory
    are proportional to the events, but for the sort of each log.
    """
    if isinstance(ignore, str) or not isinstance(ignore, Collection):
        raise ValueError(f"ignore has to be a list of names, such as ['lost-write'], not {ignore!r:.80}")
    strange = [name for name in ignore if name not in list(ANOMALIES)]
    if strange:
        raise ValueError(f"ignore has {strange[0]!r}, which is no anomaly; there are {', '.join(ANOMALIES)}")
    return anomalies_of(_events(history), ignore=ignore)


def anomalies_of(events: Iterable[Event], *, ignore: Collection[str] = ()) -> list[Anomaly]:
    """`check_history`, of events that are known to be right."""
    evidence = Evidence(tuple(events))
    found = [anomaly for checker in _CHECKERS for anomaly in checker(evidence) if anomaly.name not in ignore]
    mentions = Mentions(evidence.events, found)
    return [replace(anomaly, events=mentions.of(anomaly)) for anomaly in found]


def _events(history: History | Collection[Event]) -> tuple[Event, ...]:
    """The events of a history. HistoryError when it is none: a checker that sees no facts would find nothing wrong."""
    try:
        events = history.events if isinstance(history, History) else tuple(history)
    except TypeError:
        events = None
    if events is None or isinstance(history, str | bytes | Mapping):
        raise HistoryError(
            f"{history!r:.80} is no history: check_history takes a History, or its events; History.read(path) has "
            "those of a file"
        )
    if not isinstance(history, History):  # which has looked at each of its own
        check_events(events)
    return events

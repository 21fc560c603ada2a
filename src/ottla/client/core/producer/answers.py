"""What an answer about a batch means: one table, complete by construction.

The key has three parts: the standing of the batch in its partition, what it was sent as, and the error code of the
answer. The error codes are sorted into seven `Reply`s. `ACTIONS` has an action for every combination of standing, way
to send and reply. `docs/automata.md` shows it.

The reasons, reply by reply:
- *Written*: NONE, and DUPLICATE_SEQUENCE_NUMBER: the broker has the batch from an earlier attempt, whose answer was
  lost.
- *Doubtful*: the batch may be in the log, or may still get there. With acks=all a leader may have written a batch and
  then be deposed, or lose its topic or its disk, before the followers have copied it. It answers with such an error,
  and yet its successor may have the batch.
- *Passing*: a retriable error. The batch was not written, and a later attempt may succeed.
- *Gap*: OUT_OF_ORDER_SEQUENCE_NUMBER. If an older batch failed, this is only the echo of that failure, and the batch is
  repeated. If the batch is the next one, the leader does not have what was acknowledged before (or the producer has
  given up on the batch before it). Then a plain producer numbers the partition again in a new epoch, and a
  transactional one has to abort. There are two exceptions, batches that with a new number might be written twice:
  - A batch in doubt behind another batch in doubt that was given up on: the producer gives up on it, too. Both may lie
    unread at the broker, sent over a connection that broke.
  - A batch in doubt behind one that was acknowledged. Who answers may be a leader that was deposed and has not heard of
    it, while its successor has both. So the batch is repeated until `delivery.timeout.ms` has passed. Only the broker
    that has acknowledged the batch before, and that every attempt was sent to, is believed: it has lost both. (Java's
    producer begins again here, whoever answers.)
- *Forgotten*: UNKNOWN_PRODUCER_ID. The leader knows nothing of this producer (any more). It is like a gap.
- *Too large*: the batch is split and its halves are sent (KIP-126), also when `retries` is used up: they are new
  batches. A record that is too large alone fails.
- *Final*: any other error. Another attempt would end in the same way.

A batch *of a former epoch* got a new number after it was sent. That happens only when a batch before it was not
written. So the leader has refused it, too, whatever the answer says, and it is repeated with its new number.
"""

from collections.abc import Mapping
from enum import Enum
from itertools import product
from types import MappingProxyType
from typing import Final

from ottla.client.errors import RecordTooLargeError
from ottla.wire.errors import ErrorCode


class Standing(Enum):
    """Where a batch stands when an answer about it comes."""

    #: It is the next that its leader expects, as far as this producer knows.
    NEXT = "next"
    #: An older batch of its partition is not acknowledged yet, or its own sequence has changed since it was sent.
    BEHIND = "behind another"
    #: It is a part of a batch that may have been written as a whole before it was split (KIP-126).
    PART = "part of a doubtful batch"
    #: It may have been written, and so may a batch before it that was given up on. A refusal does not prove that they
    #: were not: the broker may still have bytes of a connection that broke, and read both batches later.
    UNPROVED = "unproved"
    #: It is the next, and may have been written, but not only by the broker that acknowledged what is before it. The
    #: one that refuses it may have been deposed without knowing it.
    ELSEWHERE = "perhaps elsewhere"
    #: It has been sent as often as `retries` allows.
    SPENT = "spent"
    #: The producer has given up on it already, or its transaction has failed.
    OVER = "over"


class SentAs(Enum):
    """What a batch was sent as."""

    #: Without a sequence (`enable.idempotence=false`).
    UNCOUNTED = "uncounted"
    #: With the sequence and epoch that it still has.
    PLAIN = "plain"
    #: The same, in a transaction.
    TRANSACTIONAL = "transactional"
    #: With a sequence of an earlier epoch; it has a new one now.
    FORMER = "of a former epoch"


class Reply(Enum):
    """What a broker answered, or that there was no answer."""

    WRITTEN = "written"
    DOUBTFUL = "doubtful"
    PASSING = "passing"
    GAP = "gap"
    FORGOTTEN = "forgotten"
    TOO_LARGE = "too large"
    FINAL = "final"


class Action(Enum):
    """What the producer does with the batch."""

    #: Tell the callers where it is.
    ACKNOWLEDGE = "acknowledge"
    #: Send it again after a pause, unchanged.
    REPEAT = "repeat"
    #: The same, and remember that it may have been written.
    REPEAT_IN_DOUBT = "repeat in doubt"
    #: Number its partition again from 0 in a new epoch; then send it again.
    BEGIN_AGAIN = "begin again"
    #: Send its halves. A single record cannot be split: give up on it.
    SPLIT = "split"
    #: Tell the callers the error. The batch was not written.
    GIVE_UP = "give up"
    #: Tell the callers the error. The batch may have been written.
    GIVE_UP_IN_DOUBT = "give up in doubt"


#: Errors after which the batch may be in the log.
_DOUBTFUL: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def _reply(code: ErrorCode) -> Reply:
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Reply.WRITTEN
    if code in _DOUBTFUL:
        return Reply.DOUBTFUL
    if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return Reply.GAP
    if code is ErrorCode.UNKNOWN_PRODUCER_ID:
        return Reply.FORGOTTEN
    if code in RecordTooLargeError.codes:
        return Reply.TOO_LARGE
    return Reply.PASSING if code.retriable else Reply.FINAL


#: The reply of every error code that there is.
REPLIES: Final[Mapping[ErrorCode, Reply]] = MappingProxyType({code: _reply(code) for code in ErrorCode})

_IN_DOUBT = {Action.GIVE_UP: Action.GIVE_UP_IN_DOUBT, Action.REPEAT: Action.REPEAT_IN_DOUBT}


def _action(standing: Standing, sent_as: SentAs, reply: Reply) -> Action:
    counted = sent_as in (SentAs.PLAIN, SentAs.TRANSACTIONAL)
    if reply is Reply.WRITTEN:
        return Action.ACKNOWLEDGE
    if reply is Reply.TOO_LARGE and standing is not Standing.OVER and sent_as is not SentAs.FORMER:
        return Action.SPLIT
    if standing in (Standing.OVER, Standing.SPENT):
        action = Action.GIVE_UP
    elif sent_as is SentAs.FORMER or reply in (Reply.PASSING, Reply.DOUBTFUL):
        action = Action.REPEAT
    elif reply in (Reply.GAP, Reply.FORGOTTEN) and counted:
        action = _after_a_gap(standing, sent_as)
    else:
        action = Action.GIVE_UP
    return _IN_DOUBT.get(action, action) if reply is Reply.DOUBTFUL and counted else action


def _after_a_gap(standing: Standing, sent_as: SentAs) -> Action:
    if standing is Standing.BEHIND:
        return Action.REPEAT
    if standing is Standing.UNPROVED:
        return Action.GIVE_UP_IN_DOUBT
    if standing is Standing.PART or sent_as is SentAs.TRANSACTIONAL:
        return Action.GIVE_UP
    if standing is Standing.ELSEWHERE:
        return Action.REPEAT_IN_DOUBT
    return Action.BEGIN_AGAIN


#: (standing, what it was sent as, reply) → action, for every combination.
ACTIONS: Final[Mapping[tuple[Standing, SentAs, Reply], Action]] = MappingProxyType(
    {key: _action(*key) for key in product(Standing, SentAs, Reply)}
)


def is_gap(code: ErrorCode) -> bool:
    """Whether a leader says that it does not have what comes before a batch."""
    return REPLIES[code] in (Reply.GAP, Reply.FORGOTTEN)


def action_for(standing: Standing, sent_as: SentAs, code: ErrorCode) -> Action:
    """What the producer does with a batch."""
    return ACTIONS[standing, sent_as, REPLIES[code]]


INTRODUCTION: Final = (
    "The producer's table (`client/core/producer/answers.py`, which also has the reasons). A row says where the batch "
    "stands when the answer comes, and what it was sent as. A column says what the answer means. A cell is what the "
    "producer does then. The last table has the error codes of each column."
)


def table() -> str:
    """The table as Markdown, for docs/automata.md."""
    lines = ["| standing | sent as | " + " | ".join(reply.value for reply in Reply) + " |"]
    lines.append("|---|---|" + "---|" * len(Reply))
    for standing, sent_as in product(Standing, SentAs):
        actions = " | ".join(ACTIONS[standing, sent_as, reply].value for reply in Reply)
        lines.append(f"| {standing.value} | {sent_as.value} | {actions} |")
    lines += ["", "| reply | error codes |", "|---|---|"]
    for reply in Reply:
        names = ", ".join(code.name for code, meant in REPLIES.items() if meant is reply)
        lines.append(f"| {reply.value} | {names} |")
    return "\n".join(lines)

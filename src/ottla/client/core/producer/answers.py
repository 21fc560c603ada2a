"""What an answer about a batch means: one table, complete by construction.

The key has three parts: where the batch stands among those of its partition, what it was sent as, and the error code
of the answer. The 130 error codes make seven `Reply`s; `ACTIONS` has an action for every standing, every way to send
and every reply. `docs/automata.md` shows it.

The reasons, reply by reply:
- *Written*: also DUPLICATE_SEQUENCE_NUMBER. The broker has the batch from an earlier attempt whose answer was lost.
- *Doubtful*: the batch may be in the log, or may come to be in it. A leader that is deposed while the followers copy a
  batch, or whose topic or disk goes, says so of that very batch (acks=all), and its successor may have it.
- *Gap*: OUT_OF_ORDER_SEQUENCE_NUMBER. For a batch behind one that failed it is the echo of that failure, and the batch
  is repeated. For the next batch it means that the leader does not have what was acknowledged before (or that the batch
  before was given up on): a plain producer counts again in a new epoch, a transactional one has to abort.
  A batch whose own fate is in doubt, as is that of one before it that was given up on, is given up on too: counted
  again it might be there twice, because both may lie unread at the broker, sent over a connection that broke.
- *Forgotten*: UNKNOWN_PRODUCER_ID. The leader has nothing of this producer any more. The same follows as from a gap.
- *Too large*: the batch is split and its halves are sent (KIP-126), also when `retries` are used up: they are new
  batches. A record that is too large alone fails.
- A batch of a *former* epoch was renumbered after it was sent: it stands behind one that was not written, so the leader
  has refused it, whatever the answer says. It is repeated as what it is now.
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
    #: An older batch of its partition has no good answer yet, or it was counted again since.
    BEHIND = "behind another"
    #: It is a part of a batch that may have been written as a whole before it was split (KIP-126).
    PART = "part of a doubtful batch"
    #: It may have been written, and so may one before it that was given up on. A refusal proves neither unwritten: the
    #: broker may have the bytes of a connection that broke, and read both of them later.
    UNPROVED = "unproved"
    #: It has been sent as often as `retries` allows.
    SPENT = "spent"
    #: Nobody waits for it any more: it was given up on, or its transaction has failed.
    OVER = "over"


class SentAs(Enum):
    """What a batch was sent as."""

    #: Without a sequence (`enable.idempotence=false`).
    UNCOUNTED = "uncounted"
    #: With a sequence of the epoch that it still has.
    PLAIN = "plain"
    #: The same, as part of a transaction.
    TRANSACTIONAL = "transactional"
    #: With a sequence of an earlier epoch.
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
    """What becomes of the batch."""

    #: Its users are told where it is.
    ACKNOWLEDGE = "acknowledge"
    #: It is sent again after a pause, as it is.
    REPEAT = "repeat"
    #: The same; until its fate is known it may have been written.
    REPEAT_IN_DOUBT = "repeat in doubt"
    #: Its partition is counted again from 0 in a new epoch; then it is sent again.
    BEGIN_AGAIN = "begin again"
    #: Its halves are sent; a single record is given up on.
    SPLIT = "split"
    #: Its users are told the error. It was not written.
    GIVE_UP = "give up"
    #: Its users are told the error. It may have been written.
    GIVE_UP_IN_DOUBT = "give up in doubt"


#: Answers that leave open whether the batch is in the log.
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


#: Every error code that there is.
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
        action = _after_a_gap(standing, sent_as, reply)
    else:
        action = Action.GIVE_UP
    return _IN_DOUBT.get(action, action) if reply is Reply.DOUBTFUL and counted else action


def _after_a_gap(standing: Standing, sent_as: SentAs, reply: Reply) -> Action:
    if standing is Standing.BEHIND and reply is Reply.GAP:
        return Action.REPEAT
    if standing is Standing.UNPROVED:
        return Action.GIVE_UP_IN_DOUBT
    if standing is Standing.PART or sent_as is SentAs.TRANSACTIONAL:
        return Action.GIVE_UP
    return Action.BEGIN_AGAIN


#: (standing, what it was sent as, reply) → action: every combination.
ACTIONS: Final[Mapping[tuple[Standing, SentAs, Reply], Action]] = MappingProxyType(
    {key: _action(*key) for key in product(Standing, SentAs, Reply)}
)


def action_for(standing: Standing, sent_as: SentAs, code: ErrorCode) -> Action:
    """What becomes of a batch."""
    return ACTIONS[standing, sent_as, REPLIES[code]]


INTRODUCTION: Final = (
    "The producer's table (`client/core/producer/answers.py`). A row is where the batch stands when the answer comes, "
    "and what it was sent as; a column is what the answer says; the last table has the error codes of each column."
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

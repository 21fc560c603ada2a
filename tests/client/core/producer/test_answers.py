"""The one table of what an answer about a batch means."""

from itertools import product

import pytest

from ottla.client.core.producer.answers import (
    ACTIONS,
    REPLIES,
    Action,
    Reply,
    SentAs,
    Standing,
    action_for,
)
from ottla.wire.errors import ErrorCode

_UNHEARD = (Standing.OVER, Standing.SPENT)


def test_it_is_complete() -> None:
    assert set(REPLIES) == set(ErrorCode)
    assert set(ACTIONS) == set(product(Standing, SentAs, Reply))
    assert set(ACTIONS.values()) == set(Action), "no action is of no use"


def test_every_answer_keeps_the_promises() -> None:
    for standing, sent_as, code in product(Standing, SentAs, ErrorCode):
        _check(standing, sent_as, code, action_for(standing, sent_as, code))


def _check(standing: Standing, sent_as: SentAs, code: ErrorCode, action: Action) -> None:
    counted = sent_as in (SentAs.PLAIN, SentAs.TRANSACTIONAL)
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        assert action is Action.ACKNOWLEDGE
        return
    assert action is not Action.ACKNOWLEDGE
    if standing is Standing.OVER:
        assert action in (Action.GIVE_UP, Action.GIVE_UP_IN_DOUBT), "nobody waits for it"
    if action is Action.BEGIN_AGAIN:
        assert sent_as is SentAs.PLAIN, "a transactional producer cannot raise its epoch by itself"
        assert standing is Standing.NEXT, "what may be in a log would be written twice"
    if REPLIES[code] is Reply.DOUBTFUL and counted:
        assert action in (Action.REPEAT_IN_DOUBT, Action.GIVE_UP_IN_DOUBT), "it may have been written"
    if sent_as is SentAs.FORMER and standing not in _UNHEARD:
        assert action is Action.REPEAT
    if not code.retriable and REPLIES[code] is Reply.FINAL and sent_as is not SentAs.FORMER:
        assert action is Action.GIVE_UP


@pytest.mark.parametrize(
    ("standing", "sent_as", "action"),
    [
        (Standing.NEXT, SentAs.PLAIN, Action.BEGIN_AGAIN),
        (Standing.NEXT, SentAs.TRANSACTIONAL, Action.GIVE_UP),
        (Standing.BEHIND, SentAs.PLAIN, Action.REPEAT),
        (Standing.BEHIND, SentAs.TRANSACTIONAL, Action.REPEAT),
        (Standing.PART, SentAs.PLAIN, Action.GIVE_UP),
        (Standing.UNPROVED, SentAs.PLAIN, Action.GIVE_UP_IN_DOUBT),
        (Standing.ELSEWHERE, SentAs.PLAIN, Action.REPEAT_IN_DOUBT),
        (Standing.ELSEWHERE, SentAs.TRANSACTIONAL, Action.GIVE_UP),
        (Standing.NEXT, SentAs.UNCOUNTED, Action.GIVE_UP),
        (Standing.SPENT, SentAs.PLAIN, Action.GIVE_UP),
    ],
)
def test_what_a_gap_means(standing: Standing, sent_as: SentAs, action: Action) -> None:
    assert action_for(standing, sent_as, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is action
    assert action_for(standing, sent_as, ErrorCode.UNKNOWN_PRODUCER_ID) is action


def test_kip126_a_batch_is_split_whatever_retries_says() -> None:
    assert action_for(Standing.SPENT, SentAs.PLAIN, ErrorCode.MESSAGE_TOO_LARGE) is Action.SPLIT
    assert action_for(Standing.OVER, SentAs.PLAIN, ErrorCode.MESSAGE_TOO_LARGE) is Action.GIVE_UP

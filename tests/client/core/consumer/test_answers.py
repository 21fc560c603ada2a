"""SPEC G3–G12: what each answer means is one table."""

import itertools

import pytest

from ottla.client.core.consumer.answers import MEANING, Next, meaning_of, table
from ottla.client.core.consumer.era import Call
from ottla.wire.errors import ErrorCode

_OF_MEMBERS = (Call.JOIN, Call.SYNC, Call.HEARTBEAT, Call.COMMIT)


@pytest.mark.parametrize(("call", "code"), list(itertools.product(MEANING, ErrorCode)), ids=lambda part: part.name)
def test_every_answer_has_a_meaning(call: Call, code: ErrorCode) -> None:
    assert meaning_of(call, code) is MEANING[call].get(code, meaning_of(call, code))
    if call in _OF_MEMBERS and code not in MEANING[call] and not code.retriable:
        assert meaning_of(call, code) is Next.FAIL


@pytest.mark.parametrize("call", _OF_MEMBERS)
def test_g12_an_expelled_member_starts_over(call: Call) -> None:
    assert meaning_of(call, ErrorCode.UNKNOWN_MEMBER_ID) is Next.START_OVER
    assert meaning_of(call, ErrorCode.ILLEGAL_GENERATION) is Next.START_OVER


@pytest.mark.parametrize("call", _OF_MEMBERS)
def test_g15_being_fenced_is_final(call: Call) -> None:
    assert meaning_of(call, ErrorCode.FENCED_INSTANCE_ID) is Next.FAIL


def test_the_table_shows_every_meaning() -> None:
    shown = table()
    assert all(code.name in shown for codes in MEANING.values() for code in codes)
    assert all(call.value in shown for call in MEANING)

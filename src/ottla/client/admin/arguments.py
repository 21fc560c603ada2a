"""What users give to the calls about transactions, checked before a broker hears of it.

A broker would cut the connection, or say no more than that it does not understand.
"""

from collections.abc import Iterable
from typing import Final

from ottla.base.config import sendable, sendable_name
from ottla.client.core.several import several

_MAX_PRODUCER_ID: Final = 2**63 - 1
_MAX_PRODUCER_EPOCH: Final = 2**15 - 1
_MAX_COORDINATOR_EPOCH: Final = 2**31 - 1


def transactional_ids(given: Iterable[str]) -> list[str]:
    """The ids. TypeError for one text and for what is no text; ValueError for one that no request can carry."""
    found = several(given, "transactional ids")
    for each in found:
        check_transactional_id(each)
    return found


def check_transactional_id(given: str) -> None:
    """Raise ValueError if no request can carry it: it is empty, too long, or no text in UTF-8."""
    wrong = sendable_name(given)
    if wrong is not None:
        raise ValueError(f"a transactional id {wrong}")


def check_pattern(given: str | None) -> None:
    """Raise ValueError if no request can carry it."""
    wrong = None if given is None else sendable(given)
    if wrong is not None:
        raise ValueError(f"a pattern {wrong}")


def check_producer(producer_id: int, producer_epoch: int, coordinator_epoch: int = 0) -> None:
    """Raise TypeError for what is no number, ValueError for one that no producer, or no coordinator, has."""
    _check_number("producer_id", producer_id, 0, _MAX_PRODUCER_ID)
    _check_number("producer_epoch", producer_epoch, 0, _MAX_PRODUCER_EPOCH)
    _check_number("coordinator_epoch", coordinator_epoch, -1, _MAX_COORDINATOR_EPOCH)


def producer_ids(given: Iterable[int]) -> list[int]:
    """Each of them once. TypeError for what is no number, ValueError for one that no producer has."""
    found = list(dict.fromkeys(given))
    for each in found:
        _check_number("producer_ids", each, -1, _MAX_PRODUCER_ID)
    return found


def _check_number(what: str, given: int, least: int, most: int) -> None:
    if not isinstance(given, int):
        raise TypeError(f"{what} must be int, not {given!r}")
    if not least <= given <= most:
        raise ValueError(f"{what} must be from {least} to {most}, not {given}")

"""librdkafka's `flush` is silent about records that were refused, or came too late: a figure must not count them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer


class RefusedRecordError(RuntimeError):
    """A record was not acknowledged; the message has the error and the topic."""


def loud_producer(settings: Mapping[str, Any]) -> Any:
    """A producer whose `poll` and `flush` raise RefusedRecordError for a record that was not acknowledged.

    Acknowledged ones cost it nothing: librdkafka reports only the others.
    """
    return Producer({"delivery.report.only.error": True, "on_delivery": _refuse, **settings})


def _refuse(fault: object, message: Any) -> None:
    if fault is not None:
        raise RefusedRecordError(f"a record for {message.topic()}-{message.partition()} was not written: {fault}")

"""Value types that every room shares."""

import base64
import binascii
from typing import NamedTuple

from ottla.base.errors import CorruptDataError


class TopicPartition(NamedTuple):
    """One partition of a topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka prints it: base64 for URLs without padding (KIP-516)."""
    return base64.urlsafe_b64encode(topic_id).decode("ascii").rstrip("=")


def topic_id_bytes(text: str) -> bytes:
    """The 16 bytes of a printed topic id; CorruptDataError when the text is no topic id."""
    try:
        topic_id = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        topic_id = b""
    if len(topic_id) != 16:
        raise CorruptDataError(f"not a topic id: {text!r}")
    return topic_id

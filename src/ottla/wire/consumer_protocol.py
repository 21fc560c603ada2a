"""What the members of a consumer group say to each other inside JoinGroup and SyncGroup (protocol type "consumer").

A version number of two bytes, then a ConsumerProtocolSubscription or ConsumerProtocolAssignment. A newer version is
read as the newest known one: Kafka only ever adds fields at the end.
"""

import struct
from typing import Final

from ottla.wire.codec import NO_LIMIT, Buffer, WireError
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.schema import M, decode, encode

#: Owned partitions (1), generation (2), rack (3).
NEWEST_VERSION: Final = 3

#: The protocol type of consumer groups.
CONSUMER: Final = "consumer"


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int = NEWEST_VERSION) -> bytes:
    """A member's subscription, as it goes into JoinGroup's metadata."""
    return struct.pack(">h", version) + encode(subscription, version)


def decode_subscription(data: Buffer, max_elements: int = NO_LIMIT) -> ConsumerProtocolSubscription:
    """The subscription in a member's metadata; WireError when it is not one, or has more elements than that."""
    return _decode(ConsumerProtocolSubscription, data, max_elements)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int = NEWEST_VERSION) -> bytes:
    """A member's assignment, as it goes into SyncGroup."""
    return struct.pack(">h", version) + encode(assignment, version)


def decode_assignment(data: Buffer, max_elements: int = NO_LIMIT) -> ConsumerProtocolAssignment:
    """The assignment in SyncGroup's answer; empty bytes are an empty assignment. Raises WireError, as above."""
    return _decode(ConsumerProtocolAssignment, data, max_elements) if len(data) else ConsumerProtocolAssignment()


def _decode(cls: type[M], data: Buffer, max_elements: int) -> M:
    if len(data) < 2:
        raise WireError(f"{cls.__name__}: {len(data)} bytes have no version")
    (version,) = struct.unpack_from(">h", data, 0)
    if version < 0:
        raise WireError(f"{cls.__name__}: version {version} is negative")
    return decode(cls, min(version, NEWEST_VERSION), data, 2, exact=False, max_elements=max_elements)

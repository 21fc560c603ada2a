"""Which version of a request to send: the highest that broker, codec and this client's shape of it have in common.

The client fills messages in the shape of Kafka 3.1 and later (topic ids, groups and coordinator keys in arrays), so
the oldest broker it speaks to is 3.1. `SHAPES` says for which versions the shape is right; the codec drops or adds what
differs inside that span. Transactions know two protocols (KIP-890): below level 2 of the feature `transaction.version`
the calls in `CAPS_OF_FIRST_TRANSACTIONS` stop at the last version that means the old protocol.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.errors import UnsupportedVersionError
from ottla.wire.apis import API, ApiKey

TRANSACTION_VERSION = "transaction.version"
#: From this level on a transaction's end raises the epoch, and Produce and TxnOffsetCommit add partitions themselves.
IMPLICIT_PARTITIONS_LEVEL = 2

#: API → (oldest, newest) version whose shape this client fills, where that is less than the codec knows.
SHAPES: Mapping[ApiKey, tuple[int, int]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),  # from 4 on only brokers use it
    ApiKey.FIND_COORDINATOR: (4, 6),
    ApiKey.LIST_OFFSETS: (2, 11),
    ApiKey.METADATA: (10, 13),
    ApiKey.OFFSET_FETCH: (8, 10),
    ApiKey.DELETE_TOPICS: (6, 6),
    ApiKey.LEAVE_GROUP: (3, 5),
    ApiKey.INIT_PRODUCER_ID: (0, 5),  # 6 is two-phase commit (KIP-939), which Apache Kafka refuses as unstable
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
}

CAPS_OF_FIRST_TRANSACTIONS: Mapping[ApiKey, int] = {
    ApiKey.PRODUCE: 11,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}


class BrokerVersions(NamedTuple):
    """What one broker said of itself in ApiVersions: the span of every API, and the cluster's feature levels."""

    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]

    def feature(self, name: str) -> int:
        """The finalized level of a feature; 0 when the cluster does not have it."""
        return self.features.get(name, 0)

    @property
    def implicit_partitions(self) -> bool:
        """Whether the cluster speaks the second transaction protocol (KIP-890)."""
        return self.feature(TRANSACTION_VERSION) >= IMPLICIT_PARTITIONS_LEVEL

    def supports(self, api: ApiKey) -> bool:
        """Whether there is a version of `api` in common."""
        return self._common(api, None) is not None

    def choose(self, api: ApiKey, cap: int | None = None) -> int:
        """The highest version in common, at most `cap`. Raises UnsupportedVersionError when there is none."""
        version = self._common(api, cap)
        if version is None:
            theirs = self.ranges.get(api)
            spoken = f"versions {theirs[0]} to {theirs[1]}" if theirs else "no version"
            raise UnsupportedVersionError(f"the broker speaks {spoken} of {api.name}, this client does not")
        return version

    def _common(self, api: ApiKey, cap: int | None) -> int | None:
        theirs = self.ranges.get(api)
        if theirs is None:
            return None
        known = API[api]
        low, high = SHAPES.get(api, (known.min_version, known.max_version))
        low = max(low, known.min_version, theirs[0])
        high = min([high, known.max_version, theirs[1]] + ([cap] if cap is not None else []))
        return high if high >= low else None

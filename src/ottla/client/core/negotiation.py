"""Which version of a request to send: the highest that the broker, the codec and this client all support.

The client fills messages in the form that Kafka has used since 3.1 (topic ids; arrays of groups and of coordinator
keys). So the oldest broker that it can talk to is 3.1. `FILLED_VERSIONS` says for which versions the client's form is
right; the codec adds or leaves out the fields that differ between these versions.

There are two transaction protocols (KIP-890). If the cluster's feature `transaction.version` is below level 2, it
speaks the first one. Then `CAPS_OF_FIRST_TRANSACTIONS` has the highest version of a request that belongs to it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.errors import UnsupportedVersionError
from ottla.wire.apis import API, ApiKey

TRANSACTION_VERSION = "transaction.version"
#: From this level on the end of a transaction raises the epoch, and Produce and TxnOffsetCommit add partitions to it.
IMPLICIT_PARTITIONS_LEVEL = 2
#: The first version of InitProducerId that knows two-phase commit (KIP-939).
TWO_PHASE_VERSION = 6

#: API → (oldest, newest) version that this client can fill, where the codec knows more versions.
FILLED_VERSIONS: Mapping[ApiKey, tuple[int, int]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),  # from 4 on only brokers use it
    ApiKey.FIND_COORDINATOR: (4, 6),
    ApiKey.LIST_OFFSETS: (2, 11),
    ApiKey.METADATA: (10, 13),
    ApiKey.OFFSET_FETCH: (8, 10),
    ApiKey.DELETE_TOPICS: (6, 6),
    ApiKey.LEAVE_GROUP: (3, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
}

CAPS_OF_FIRST_TRANSACTIONS: Mapping[ApiKey, int] = {
    ApiKey.PRODUCE: 11,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}


class BrokerVersions(NamedTuple):
    """A broker's answer to ApiVersions: the (lowest, highest) version of each API, and the cluster's feature levels."""

    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]

    def feature(self, name: str) -> int:
        """The finalized level of a feature; 0 if the cluster does not have it."""
        return self.features.get(name, 0)

    @property
    def implicit_partitions(self) -> bool:
        """Whether the cluster speaks the second transaction protocol (KIP-890)."""
        return self.feature(TRANSACTION_VERSION) >= IMPLICIT_PARTITIONS_LEVEL

    @property
    def two_phase_commit(self) -> bool:
        """Whether the cluster knows transactions without a time-out (KIP-939). Whether it allows them, it says later.

        In the first transaction protocol a late commit could end the next transaction, so there it does not count.
        """
        return self.implicit_partitions and self.ranges.get(ApiKey.INIT_PRODUCER_ID, (0, 0))[1] >= TWO_PHASE_VERSION

    def supports(self, api: ApiKey) -> bool:
        """Whether this client and the broker have a version of `api` in common."""
        return self._common(api, None) is not None

    def choose(self, api: ApiKey, cap: int | None = None, least: int | None = None) -> int:
        """The highest version in common, but at most `cap`. Raises UnsupportedVersionError if there is none.

        It also raises that if the version is below `least`.
        """
        version = self._common(api, cap)
        if version is not None and least is not None and version < least:
            raise UnsupportedVersionError(
                f"this request needs version {least} of {api.name} or newer, and the broker speaks only up to {version}"
            )
        if version is None:
            theirs = self.ranges.get(api)
            spoken = f"versions {theirs[0]} to {theirs[1]}" if theirs else "no version"
            raise UnsupportedVersionError(
                f"this client and the broker have no version of {api.name} in common: the broker speaks {spoken} of "
                f"{api.name}; this client works with Kafka 3.1 and newer"
            )
        return version

    def _common(self, api: ApiKey, cap: int | None) -> int | None:
        theirs = self.ranges.get(api)
        if theirs is None:
            return None
        known = API[api]
        low, high = FILLED_VERSIONS.get(api, (known.min_version, known.max_version))
        low = max(low, known.min_version, theirs[0])
        high = min([high, known.max_version, theirs[1]] + ([cap] if cap is not None else []))
        return high if high >= low else None

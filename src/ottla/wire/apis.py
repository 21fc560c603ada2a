"""Every API that Ottla speaks: its number, its versions, and the two messages.

What a broker offers is the broker's own table; what a version looks like is `ottla.wire.schema`.
"""

from enum import IntEnum
from importlib import import_module
from typing import Any, Final, NamedTuple


class ApiKey(IntEnum):
    """Kafka's API keys: those that Ottla speaks."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


#: No version of the API is flexible.
NEVER: Final = 32767


class Api(NamedTuple):
    """One API: first and last version known here, and from which version on it is flexible (KIP-482)."""

    key: ApiKey
    min_version: int
    max_version: int
    flexible_from: int

    @property
    def module(self) -> str:
        """The snake-case name, which is also the module under `ottla.wire.messages`."""
        return self.key.name.lower()

    @property
    def name(self) -> str:
        """Kafka's own name: `InitProducerId`."""
        return "".join(word.capitalize() for word in self.module.split("_"))

    @property
    def request(self) -> type[Any]:
        """The request's class; its module is imported on first use."""
        return self._class("Request")

    @property
    def response(self) -> type[Any]:
        """The response's class."""
        return self._class("Response")

    def _class(self, suffix: str) -> type[Any]:
        found = _CLASSES.get((self.key, suffix))
        if found is None:
            module = import_module(f"ottla.wire.messages.{self.module}")
            found = _CLASSES[self.key, suffix] = getattr(module, self.name + suffix)
        return found


_CLASSES: dict[tuple[ApiKey, str], type[Any]] = {}

API: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, 3, 13, 9),
        Api(ApiKey.FETCH, 4, 18, 12),
        Api(ApiKey.LIST_OFFSETS, 1, 11, 6),
        Api(ApiKey.METADATA, 0, 13, 9),
        Api(ApiKey.OFFSET_COMMIT, 2, 10, 8),
        Api(ApiKey.OFFSET_FETCH, 1, 10, 6),
        Api(ApiKey.FIND_COORDINATOR, 0, 6, 3),
        Api(ApiKey.JOIN_GROUP, 0, 9, 6),
        Api(ApiKey.HEARTBEAT, 0, 4, 4),
        Api(ApiKey.LEAVE_GROUP, 0, 5, 4),
        Api(ApiKey.SYNC_GROUP, 0, 5, 4),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
        Api(ApiKey.LIST_GROUPS, 0, 5, 3),
        Api(ApiKey.SASL_HANDSHAKE, 0, 1, NEVER),
        Api(ApiKey.API_VERSIONS, 0, 4, 3),
        Api(ApiKey.CREATE_TOPICS, 2, 7, 5),
        Api(ApiKey.DELETE_TOPICS, 1, 6, 4),
        Api(ApiKey.DELETE_RECORDS, 0, 2, 2),
        Api(ApiKey.INIT_PRODUCER_ID, 0, 6, 2),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
        Api(ApiKey.END_TXN, 0, 5, 3),
        Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, 1),
        Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3),
        Api(ApiKey.DESCRIBE_ACLS, 1, 3, 2),
        Api(ApiKey.CREATE_ACLS, 1, 3, 2),
        Api(ApiKey.DELETE_ACLS, 1, 3, 2),
        Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4),
        Api(ApiKey.ALTER_CONFIGS, 0, 2, 2),
        Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
        Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
        Api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
        Api(ApiKey.CREATE_PARTITIONS, 0, 3, 2),
        Api(ApiKey.DELETE_GROUPS, 0, 2, 2),
        Api(ApiKey.ELECT_LEADERS, 0, 2, 2),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
        Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0),
        Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
        Api(ApiKey.OFFSET_DELETE, 0, 0, NEVER),
        Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
        Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1),
        Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0),
        Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0),
        Api(ApiKey.DESCRIBE_QUORUM, 0, 2, 0),
        Api(ApiKey.UPDATE_FEATURES, 0, 2, 0),
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
        Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
        Api(ApiKey.LIST_TRANSACTIONS, 0, 2, 0),
        Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
        Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
        Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
        Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
    )
}

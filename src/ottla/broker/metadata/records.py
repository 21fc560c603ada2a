"""The records of the metadata log in KRaft's own schemas (Kafka's `common/metadata/*.json`).

A record's value is a frame version, the record's api key and its version, each an unsigned varint, then the struct in
flexible encoding; keys are null. `kafka-dump-log --cluster-metadata-decoder` reads them.
"""

from typing import Final, NamedTuple, TypeAlias

from ottla.broker.metadata.node_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from ottla.wire.codec import NULL_UUID, WireError
from ottla.wire.producer_ids_record import ProducerIdsRecord
from ottla.wire.schema import LATEST, Field, declare, decode, encode

#: `metadata.version` 4.0-IV3, of which a directory of ours is from its beginning.
METADATA_VERSION: Final = 25
_FRAME_VERSION: Final = 1
#: Frame version, key and version are varints. All of ours are below 128, and so one byte each.
_PREFIX_BYTES: Final = 3


class UnknownRecordError(WireError):
    """A record whose type or version this version of Ottla does not know. It is not damaged."""


class TopicRecord(NamedTuple):
    """A topic exists."""

    name: str = ""
    topic_id: bytes = NULL_UUID


class PartitionRecord(NamedTuple):
    """A partition exists, or has changed."""

    partition_id: int = -1
    topic_id: bytes = NULL_UUID
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader: int = -1
    leader_recovery_state: int = 0
    leader_epoch: int = -1
    partition_epoch: int = -1
    directories: tuple[bytes, ...] = ()
    #: None: nothing is said of them (KIP-966).
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


#: A `leader` in a PartitionChangeRecord: there is none, or it is as it was.
NO_LEADER: Final = -1
LEADER_NO_CHANGE: Final = -2


class PartitionChangeRecord(NamedTuple):
    """Something of a partition has changed; None, and a default, is what has not. A new leader has the next epoch."""

    partition_id: int = -1
    topic_id: bytes = NULL_UUID
    isr: tuple[int, ...] | None = None
    leader: int = LEADER_NO_CHANGE
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int = -1
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    directories: tuple[bytes, ...] | None = None


class ConfigRecord(NamedTuple):
    """A resource's setting; the value None removes it."""

    resource_type: int = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = None


class RemoveTopicRecord(NamedTuple):
    """A topic and all its partitions are gone."""

    topic_id: bytes = NULL_UUID


class FeatureLevelRecord(NamedTuple):
    """A finalized feature; a metadata log begins with `metadata.version`."""

    name: str = ""
    feature_level: int = 0


class AccessControlEntryRecord(NamedTuple):
    """An ACL exists; behind its id stand the fields of `access.acls.Acl`."""

    id: bytes = NULL_UUID
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 0
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class RemoveAccessControlEntryRecord(NamedTuple):
    """An ACL is gone."""

    id: bytes = NULL_UUID


class UserScramCredentialRecord(NamedTuple):
    """A user's SCRAM credential; `mechanism` is Kafka's number of it."""

    name: str = ""
    mechanism: int = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int = 0

    def __repr__(self) -> str:
        return "UserScramCredentialRecord([hidden])"


class RemoveUserScramCredentialRecord(NamedTuple):
    """A user's SCRAM credential is gone."""

    name: str = ""
    mechanism: int = 0


class QuotaEntityData(NamedTuple):
    """A part of a quota's entity: its type and its name, None for the default."""

    entity_type: str = ""
    entity_name: str | None = None


class ClientQuotaRecord(NamedTuple):
    """A quota of an entity is set, or removed."""

    entity: tuple[QuotaEntityData, ...] = ()
    key: str = ""
    value: float = 0.0
    remove: bool = False


class NoOpRecord(NamedTuple):
    """Nothing: Apache Kafka's controller writes it twice a second."""


class BeginTransactionRecord(NamedTuple):
    """What follows counts together, with the EndTransactionRecord (KIP-868)."""

    name: str | None = None


class EndTransactionRecord(NamedTuple):
    """What was written since the transaction's beginning counts."""


class AbortTransactionRecord(NamedTuple):
    """What was written since the transaction's beginning does not count."""

    reason: str | None = None


class ClearElrRecord(NamedTuple):
    """Nothing is said of a topic's eligible leader replicas any more; of all topics', when the name is empty."""

    topic_name: str = ""


class ZkMigrationStateRecord(NamedTuple):
    """How far a cluster has come on its way from ZooKeeper."""

    zk_migration_state: int = 0


class DelegationTokenRecord(NamedTuple):
    """A delegation token exists, or was renewed; times are in milliseconds."""

    owner: str = ""
    requester: str = ""
    renewers: tuple[str, ...] = ()
    issue_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    expiration_timestamp_ms: int = 0
    token_id: str = ""


class RemoveDelegationTokenRecord(NamedTuple):
    """A delegation token is gone."""

    token_id: str = ""


MetadataRecord: TypeAlias = (
    TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | NoOpRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | ClearElrRecord
    | ZkMigrationStateRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | RegisterBrokerRecord
    | UnregisterBrokerRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | BrokerRegistrationChangeRecord
    | RegisterControllerRecord
    | ConfigRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ClientQuotaRecord
)

declare(TopicRecord, (Field("name", "string"), Field("topic_id", "uuid")), flexible_from=0)
declare(
    PartitionRecord,
    (
        Field("partition_id", "int32"),
        Field("topic_id", "uuid"),
        Field("replicas", ["int32"]),
        Field("isr", ["int32"]),
        Field("removing_replicas", ["int32"]),
        Field("adding_replicas", ["int32"]),
        Field("leader", "int32"),
        Field("leader_recovery_state", "int8", tag=0),
        Field("leader_epoch", "int32"),
        Field("partition_epoch", "int32"),
        Field("directories", ["uuid"], first=1),
        Field("eligible_leader_replicas", ["int32"], first=2, null_first=2, null_last=LATEST, tag=1),
        Field("last_known_elr", ["int32"], first=2, null_first=2, null_last=LATEST, tag=2),
    ),
    flexible_from=0,
)
declare(
    PartitionChangeRecord,
    (
        Field("partition_id", "int32"),
        Field("topic_id", "uuid"),
        Field("isr", ["int32"], null_first=0, null_last=LATEST, tag=0),
        Field("leader", "int32", tag=1),
        Field("replicas", ["int32"], null_first=0, null_last=LATEST, tag=2),
        Field("removing_replicas", ["int32"], null_first=0, null_last=LATEST, tag=3),
        Field("adding_replicas", ["int32"], null_first=0, null_last=LATEST, tag=4),
        Field("leader_recovery_state", "int8", tag=5),
        Field("eligible_leader_replicas", ["int32"], first=2, null_first=2, null_last=LATEST, tag=6),
        Field("last_known_elr", ["int32"], first=2, null_first=2, null_last=LATEST, tag=7),
        Field("directories", ["uuid"], first=1, null_first=1, null_last=LATEST, tag=8),
    ),
    flexible_from=0,
)
declare(
    ConfigRecord,
    (
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        Field("name", "string"),
        Field("value", "string", null_first=0, null_last=LATEST),
    ),
    flexible_from=0,
)
declare(RemoveTopicRecord, (Field("topic_id", "uuid"),), flexible_from=0)
declare(FeatureLevelRecord, (Field("name", "string"), Field("feature_level", "int16")), flexible_from=0)
declare(
    AccessControlEntryRecord,
    (
        Field("id", "uuid"),
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        Field("pattern_type", "int8"),
        Field("principal", "string"),
        Field("host", "string"),
        Field("operation", "int8"),
        Field("permission_type", "int8"),
    ),
    flexible_from=0,
)
declare(RemoveAccessControlEntryRecord, (Field("id", "uuid"),), flexible_from=0)
declare(
    UserScramCredentialRecord,
    (
        Field("name", "string"),
        Field("mechanism", "int8"),
        Field("salt", "bytes"),
        Field("stored_key", "bytes"),
        Field("server_key", "bytes"),
        Field("iterations", "int32"),
    ),
    flexible_from=0,
)
declare(RemoveUserScramCredentialRecord, (Field("name", "string"), Field("mechanism", "int8")), flexible_from=0)
declare(
    QuotaEntityData,
    (Field("entity_type", "string"), Field("entity_name", "string", null_first=0, null_last=LATEST)),
    flexible_from=0,
)
declare(
    ClientQuotaRecord,
    (Field("entity", [QuotaEntityData]), Field("key", "string"), Field("value", "float64"), Field("remove", "bool")),
    flexible_from=0,
)

declare(NoOpRecord, (), flexible_from=0)
declare(BeginTransactionRecord, (Field("name", "string", null_first=0, null_last=LATEST, tag=0),), flexible_from=0)
declare(EndTransactionRecord, (), flexible_from=0)
declare(AbortTransactionRecord, (Field("reason", "string", null_first=0, null_last=LATEST, tag=0),), flexible_from=0)
declare(ClearElrRecord, (Field("topic_name", "string"),), flexible_from=0)
declare(ZkMigrationStateRecord, (Field("zk_migration_state", "int8"),), flexible_from=0)
declare(
    DelegationTokenRecord,
    (
        Field("owner", "string"),
        Field("requester", "string"),
        Field("renewers", ["string"]),
        Field("issue_timestamp_ms", "int64"),
        Field("max_timestamp_ms", "int64"),
        Field("expiration_timestamp_ms", "int64"),
        Field("token_id", "string"),
    ),
    flexible_from=0,
)
declare(RemoveDelegationTokenRecord, (Field("token_id", "string"),), flexible_from=0)

#: Api key and the newest version; every version up to it is read.
_TYPES: Final[dict[type[MetadataRecord], tuple[int, int]]] = {
    TopicRecord: (2, 0),
    PartitionRecord: (3, 2),
    PartitionChangeRecord: (5, 2),
    ConfigRecord: (4, 0),
    RemoveTopicRecord: (9, 0),
    FeatureLevelRecord: (12, 0),
    ProducerIdsRecord: (15, 0),
    UserScramCredentialRecord: (11, 0),
    RemoveUserScramCredentialRecord: (22, 0),
    AccessControlEntryRecord: (18, 0),
    RemoveAccessControlEntryRecord: (19, 0),
    ClientQuotaRecord: (14, 0),
    RegisterBrokerRecord: (0, 4),
    UnregisterBrokerRecord: (1, 0),
    FenceBrokerRecord: (7, 0),
    UnfenceBrokerRecord: (8, 0),
    DelegationTokenRecord: (10, 0),
    BrokerRegistrationChangeRecord: (17, 3),
    NoOpRecord: (20, 0),
    ZkMigrationStateRecord: (21, 0),
    BeginTransactionRecord: (23, 0),
    EndTransactionRecord: (24, 0),
    AbortTransactionRecord: (25, 0),
    RemoveDelegationTokenRecord: (26, 0),
    RegisterControllerRecord: (27, 0),
    ClearElrRecord: (28, 0),
}
#: From which `metadata.version` on which version of the record is written (`MetadataVersion.java`).
_WRITTEN: Final[dict[type[MetadataRecord], tuple[tuple[int, int], ...]]] = {
    # An older Ottla reads version 1 only; version 2 would say no more of one replica.
    PartitionRecord: ((0, 0), (17, 1)),
    PartitionChangeRecord: ((0, 0), (17, 1), (23, 2)),
}
_CLASSES: Final = {key: (cls, version) for cls, (key, version) in _TYPES.items()}


def encode_record(record: MetadataRecord, metadata_version: int = METADATA_VERSION) -> bytes:
    """A record's value, in the version of the record that goes with the log's `metadata.version`."""
    key, version = _TYPES[type(record)]
    for since, number in _WRITTEN.get(type(record), ()):
        if metadata_version >= since:
            version = number
    return bytes((_FRAME_VERSION, key, version)) + encode(record, version)


def decode_record(value: bytes) -> MetadataRecord:
    """A record from its value. WireError when it is no such record.

    UnknownRecordError for one that this version of Ottla does not know.
    """
    if len(value) < _PREFIX_BYTES or value[0] != _FRAME_VERSION:
        raise WireError(f"not a metadata record of frame version {_FRAME_VERSION}: {value[:4].hex()}")
    _, key, version = value[:_PREFIX_BYTES]
    cls, newest = _CLASSES.get(key, (None, 0))
    if cls is None or version > newest:
        raise UnknownRecordError(f"metadata record: type {key} version {version} is not known")
    return decode(cls, version, value, _PREFIX_BYTES)

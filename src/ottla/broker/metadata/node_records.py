"""Records of the metadata log about the cluster's nodes, in KRaft's own schemas.

One node that is its own quorum has nothing to say there, and we write none. Apache Kafka does: a node registers each
time it starts, is fenced until it is ready, and again when it stops.
"""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID
from ottla.wire.schema import LATEST, Field, declare


class NodeEndpoint(NamedTuple):
    """Where a node is reached; `security_protocol` is Kafka's number of it."""

    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0


class NodeFeature(NamedTuple):
    """The levels of a feature that a node supports."""

    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0


class RegisterBrokerRecord(NamedTuple):
    """A broker has started. Its epoch is this record's offset."""

    broker_id: int = 0
    is_migrating_zk_broker: bool = False
    incarnation_id: bytes = NULL_UUID
    broker_epoch: int = 0
    end_points: tuple[NodeEndpoint, ...] = ()
    features: tuple[NodeFeature, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None


class UnregisterBrokerRecord(NamedTuple):
    """A broker is gone for good."""

    broker_id: int = 0
    broker_epoch: int = 0


class FenceBrokerRecord(NamedTuple):
    """A broker leads nothing (before 3.2)."""

    id: int = 0
    epoch: int = 0


class UnfenceBrokerRecord(NamedTuple):
    """A broker may lead (before 3.2)."""

    id: int = 0
    epoch: int = 0


class BrokerRegistrationChangeRecord(NamedTuple):
    """Something of a broker has changed: -1 it may lead now, 1 it is fenced."""

    broker_id: int = 0
    broker_epoch: int = 0
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None


class RegisterControllerRecord(NamedTuple):
    """A controller has started."""

    controller_id: int = 0
    incarnation_id: bytes = NULL_UUID
    zk_migration_ready: bool = False
    end_points: tuple[NodeEndpoint, ...] = ()
    features: tuple[NodeFeature, ...] = ()


declare(
    NodeEndpoint,
    (
        Field("name", "string"),
        Field("host", "string"),
        Field("port", "uint16"),
        Field("security_protocol", "int16"),
    ),
    flexible_from=0,
)
declare(
    NodeFeature,
    (
        Field("name", "string"),
        Field("min_supported_version", "int16"),
        Field("max_supported_version", "int16"),
    ),
    flexible_from=0,
)
declare(
    RegisterBrokerRecord,
    (
        Field("broker_id", "int32"),
        Field("is_migrating_zk_broker", "bool", first=2),
        Field("incarnation_id", "uuid"),
        Field("broker_epoch", "int64"),
        Field("end_points", [NodeEndpoint]),
        Field("features", [NodeFeature]),
        Field("rack", "string", null_first=0, null_last=LATEST),
        Field("fenced", "bool"),
        Field("in_controlled_shutdown", "bool", first=1),
        Field("log_dirs", ["uuid"], first=3, tag=0),
        Field("cordoned_log_dirs", ["uuid"], first=4, null_first=4, null_last=LATEST, tag=1),
    ),
    flexible_from=0,
)
declare(UnregisterBrokerRecord, (Field("broker_id", "int32"), Field("broker_epoch", "int64")), flexible_from=0)
declare(FenceBrokerRecord, (Field("id", "int32"), Field("epoch", "int64")), flexible_from=0)
declare(UnfenceBrokerRecord, (Field("id", "int32"), Field("epoch", "int64")), flexible_from=0)
declare(
    BrokerRegistrationChangeRecord,
    (
        Field("broker_id", "int32"),
        Field("broker_epoch", "int64"),
        Field("fenced", "int8", tag=0),
        Field("in_controlled_shutdown", "int8", first=1, tag=1),
        Field("log_dirs", ["uuid"], first=2, tag=2),
        Field("cordoned_log_dirs", ["uuid"], first=3, null_first=3, null_last=LATEST, tag=3),
    ),
    flexible_from=0,
)
declare(
    RegisterControllerRecord,
    (
        Field("controller_id", "int32"),
        Field("incarnation_id", "uuid"),
        Field("zk_migration_ready", "bool"),
        Field("end_points", [NodeEndpoint]),
        Field("features", [NodeFeature]),
    ),
    flexible_from=0,
)

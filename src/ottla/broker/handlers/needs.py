"""What each API needs: the one table of operations, resources and errors. `docs/apis.md` shows it.

It is what Kafka 4.3's KafkaApis and ControllerApis ask for. The handlers ask; a test makes every API's request for
somebody who may do nothing, and compares the answer with this table.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.wire.acls import AclOperation, ResourceType

_O, _R = AclOperation, ResourceType


class Need(NamedTuple):
    """One operation on one kind of resource. Without it the answer has the error of that kind."""

    operation: AclOperation
    on: ResourceType
    #: An operation on the cluster that is enough, too.
    or_on_cluster: AclOperation | None = None
    #: No error: what may not be described is left out of the answer.
    left_out: bool = False
    #: When it is needed, if not always.
    when: str = ""

    def __str__(self) -> str:
        text = f"{self.operation.name} {_WORDS[self.on]}"
        if self.or_on_cluster is not None:
            text += f" or {self.or_on_cluster.name} cluster"
        notes = [note for note in (self.when, "else left out" if self.left_out else "") if note]
        return f"{text} ({', '.join(notes)})" if notes else text


_WORDS: Final = {
    _R.TOPIC: "topic",
    _R.GROUP: "group",
    _R.CLUSTER: "cluster",
    _R.TRANSACTIONAL_ID: "transactional id",
}
_READ_GROUP: Final = Need(_O.READ, _R.GROUP)
_DESCRIBE_GROUP: Final = Need(_O.DESCRIBE, _R.GROUP)
_DESCRIBE_TOPIC: Final = Need(_O.DESCRIBE, _R.TOPIC)
_WRITE_TRANSACTION: Final = Need(_O.WRITE, _R.TRANSACTIONAL_ID)
_ALTER_CLUSTER: Final = Need(_O.ALTER, _R.CLUSTER)
_DESCRIBE_CLUSTER: Final = Need(_O.DESCRIBE, _R.CLUSTER)
_SHOWN_TOPIC: Final = Need(_O.DESCRIBE, _R.TOPIC, left_out=True)

_ALTER_CONFIGS: Final = (
    Need(_O.ALTER_CONFIGS, _R.TOPIC),
    Need(_O.ALTER_CONFIGS, _R.GROUP),
    Need(_O.ALTER_CONFIGS, _R.CLUSTER, when="of a broker"),
)

#: By the name of the API's key. In the order in which they are asked for; the first that is missing gives the error.
NEEDS: Final[Mapping[str, tuple[Need, ...]]] = {
    "PRODUCE": (
        Need(_O.WRITE, _R.TRANSACTIONAL_ID, when="for transactional batches"),
        Need(_O.WRITE, _R.TOPIC),
    ),
    "FETCH": (Need(_O.READ, _R.TOPIC),),
    "LIST_OFFSETS": (_DESCRIBE_TOPIC,),
    "METADATA": (
        Need(_O.DESCRIBE, _R.TOPIC, when="left out where all topics are asked for"),
        Need(_O.CREATE, _R.TOPIC, or_on_cluster=_O.CREATE, when="to make a missing one"),
    ),
    "OFFSET_COMMIT": (_READ_GROUP, Need(_O.READ, _R.TOPIC)),
    "OFFSET_FETCH": (_DESCRIBE_GROUP, Need(_O.DESCRIBE, _R.TOPIC, when="left out where all offsets are asked for")),
    "FIND_COORDINATOR": (
        Need(_O.DESCRIBE, _R.GROUP, when="of a group"),
        Need(_O.DESCRIBE, _R.TRANSACTIONAL_ID, when="of a transactional id"),
    ),
    "JOIN_GROUP": (_READ_GROUP,),
    "HEARTBEAT": (_READ_GROUP,),
    "LEAVE_GROUP": (_READ_GROUP,),
    "SYNC_GROUP": (_READ_GROUP,),
    "DESCRIBE_GROUPS": (_DESCRIBE_GROUP,),
    "LIST_GROUPS": (Need(_O.DESCRIBE, _R.GROUP, or_on_cluster=_O.DESCRIBE, left_out=True),),
    "SASL_HANDSHAKE": (),
    "SASL_AUTHENTICATE": (),
    "API_VERSIONS": (),
    "CREATE_TOPICS": (
        Need(_O.CREATE, _R.TOPIC, or_on_cluster=_O.CREATE),
        Need(_O.DESCRIBE_CONFIGS, _R.TOPIC, left_out=True, when="for the settings in the answer"),
    ),
    "DELETE_TOPICS": (Need(_O.DELETE, _R.TOPIC, or_on_cluster=_O.DELETE), _SHOWN_TOPIC),
    "DELETE_RECORDS": (Need(_O.DELETE, _R.TOPIC),),
    "INIT_PRODUCER_ID": (
        Need(_O.WRITE, _R.TRANSACTIONAL_ID, when="with one"),
        Need(_O.TWO_PHASE_COMMIT, _R.TRANSACTIONAL_ID, when="for two-phase commit"),
        Need(_O.IDEMPOTENT_WRITE, _R.CLUSTER, when="without a transactional id; WRITE on any topic is enough"),
    ),
    "OFFSET_FOR_LEADER_EPOCH": (Need(_O.DESCRIBE, _R.TOPIC, or_on_cluster=_O.CLUSTER_ACTION),),
    "ADD_PARTITIONS_TO_TXN": (
        Need(_O.CLUSTER_ACTION, _R.CLUSTER, when="from version 4 on, which brokers send"),
        Need(_O.WRITE, _R.TRANSACTIONAL_ID, when="up to version 3"),
        Need(_O.WRITE, _R.TOPIC, when="up to version 3"),
    ),
    "ADD_OFFSETS_TO_TXN": (_WRITE_TRANSACTION, _READ_GROUP),
    "END_TXN": (_WRITE_TRANSACTION,),
    "WRITE_TXN_MARKERS": (Need(_O.CLUSTER_ACTION, _R.CLUSTER, or_on_cluster=_O.ALTER),),
    "TXN_OFFSET_COMMIT": (_WRITE_TRANSACTION, _READ_GROUP, Need(_O.READ, _R.TOPIC)),
    "DESCRIBE_ACLS": (_DESCRIBE_CLUSTER,),
    "CREATE_ACLS": (_ALTER_CLUSTER,),
    "DELETE_ACLS": (_ALTER_CLUSTER,),
    "DESCRIBE_CONFIGS": (
        Need(_O.DESCRIBE_CONFIGS, _R.TOPIC),
        Need(_O.DESCRIBE_CONFIGS, _R.GROUP),
        Need(_O.DESCRIBE_CONFIGS, _R.CLUSTER, when="of a broker"),
    ),
    "ALTER_CONFIGS": _ALTER_CONFIGS,
    "INCREMENTAL_ALTER_CONFIGS": _ALTER_CONFIGS,
    "ALTER_REPLICA_LOG_DIRS": (_ALTER_CLUSTER,),
    "DESCRIBE_LOG_DIRS": (_DESCRIBE_CLUSTER,),
    "CREATE_PARTITIONS": (Need(_O.ALTER, _R.TOPIC),),
    "DELETE_GROUPS": (Need(_O.DELETE, _R.GROUP),),
    "ELECT_LEADERS": (_ALTER_CLUSTER,),
    "ALTER_PARTITION_REASSIGNMENTS": (_ALTER_CLUSTER,),
    "LIST_PARTITION_REASSIGNMENTS": (_DESCRIBE_CLUSTER,),
    "OFFSET_DELETE": (Need(_O.DELETE, _R.GROUP), Need(_O.READ, _R.TOPIC)),
    "DESCRIBE_CLIENT_QUOTAS": (Need(_O.DESCRIBE_CONFIGS, _R.CLUSTER),),
    "ALTER_CLIENT_QUOTAS": (Need(_O.ALTER_CONFIGS, _R.CLUSTER),),
    "DESCRIBE_USER_SCRAM_CREDENTIALS": (_DESCRIBE_CLUSTER,),
    "ALTER_USER_SCRAM_CREDENTIALS": (_ALTER_CLUSTER,),
    "CONSUMER_GROUP_HEARTBEAT": (_READ_GROUP, _DESCRIBE_TOPIC),
    "CONSUMER_GROUP_DESCRIBE": (_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    "DESCRIBE_QUORUM": (_DESCRIBE_CLUSTER,),
    "UPDATE_FEATURES": (_ALTER_CLUSTER,),
    "DESCRIBE_CLUSTER": (Need(_O.DESCRIBE, _R.CLUSTER, left_out=True, when="for its authorized operations"),),
    "DESCRIBE_PRODUCERS": (Need(_O.READ, _R.TOPIC),),
    "DESCRIBE_TRANSACTIONS": (Need(_O.DESCRIBE, _R.TRANSACTIONAL_ID), _SHOWN_TOPIC),
    "LIST_TRANSACTIONS": (Need(_O.DESCRIBE, _R.TRANSACTIONAL_ID, left_out=True),),
    "LIST_CONFIG_RESOURCES": (Need(_O.DESCRIBE_CONFIGS, _R.CLUSTER),),
    "DESCRIBE_TOPIC_PARTITIONS": (Need(_O.DESCRIBE, _R.TOPIC, when="left out where all topics are asked for"),),
}

"""The broker's configuration keys: Kafka's names, types and defaults.

Every key of Kafka 4.3 is known, so that a `server.properties` can be used as it is: keys with an effect are below, the
others in `config_accepted`. Some defaults differ from Kafka's. One node is the whole cluster, so replication factors
default to 1, `node.id` to 1, and `log.dirs` to `ottla-data`. Clients do not say who they are, so `listeners` is only
reachable from this machine.
"""

from typing import Final

from ottla.base.config import ConfigKey, ConfigSet, ConfigType, between, each_of, not_empty, one_of
from ottla.base.limits import MAX_DESCRIBED_PARTITIONS, MAX_REQUEST_BYTES
from ottla.broker.config_accepted import ACCEPTED
from ottla.broker.config_security import OAUTH, SASL, TLS

INT, LONG, DOUBLE, BOOL, STR, LIST = (
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.LIST,
)
_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
_HOUR_MS: Final = 3_600_000
_at_least_0, _at_least_1 = between(0), between(1)
#: The smallest value of `log.segment.bytes` and `segment.bytes`.
SMALLEST_SEGMENT_BYTES: Final = 1_048_576
CLEANUP_POLICY: Final = each_of("compact", "delete")
CODECS: Final = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
ZSTD_LEVEL: Final = between(-131_072, 22)


def gzip_level(value: object) -> str | None:
    """Accept the levels of gzip, and -1 for its default."""
    return None if value in (-1, *range(1, 10)) else "must be from 1 to 9, or -1"


def _one_node(value: object) -> str | None:
    alone = isinstance(value, tuple) and len(value) <= 1
    return None if alone else "must name one node at most: Ottla is one node, which is its own quorum"


NODE: Final = (
    ConfigKey("node.id", INT, 1, "This broker's id.", _at_least_0, ("broker.id",)),
    ConfigKey("cluster.id", STR, None, "Cluster id of a new data directory; 22 characters of base64."),
    ConfigKey("broker.rack", STR, None, "This broker's rack, told to clients."),
    ConfigKey(
        "process.roles", LIST, None, "A node is both; `controller` alone is refused.", each_of("broker", "controller")
    ),
    ConfigKey(
        "listeners",
        LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where to listen: NAME://host:port, one for each; those of controllers are not served.",
        not_empty,
    ),
    ConfigKey(
        "advertised.listeners", LIST, None, "The address that clients of each are told; default: where it listens."
    ),
    ConfigKey(
        "listener.security.protocol.map",
        STR,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "What listeners speak, by their names.",
    ),
    ConfigKey("controller.listener.names", LIST, None, "Listeners of controllers, which are not served.", not_empty),
    ConfigKey("controller.quorum.voters", LIST, (), "One at most: one node is its own quorum.", _one_node),
    ConfigKey("controller.quorum.bootstrap.servers", LIST, (), "One at most, as above.", _one_node),
    ConfigKey("log.dirs", LIST, ("ottla-data",), "The data directory.", not_empty, ("log.dir",)),
    ConfigKey("max.connections", INT, _INT_MAX, "Connections at one time.", _at_least_0),
    ConfigKey("max.connections.per.ip", INT, _INT_MAX, "Connections of one address at one time.", _at_least_0),
    ConfigKey(
        "max.connections.per.ip.overrides", STR, "", "Other limits for some: `10.0.0.1:100,10.0.0.2:0`, or host names."
    ),
    ConfigKey(
        "max.connection.creation.rate", INT, _INT_MAX, "New connections a second; others wait for a while.", _at_least_0
    ),
    ConfigKey("connections.max.idle.ms", LONG, 600_000, "Idle connections are closed after this time."),
    ConfigKey("socket.request.max.bytes", INT, MAX_REQUEST_BYTES, "Largest request.", _at_least_1),
    ConfigKey(
        "queued.max.request.bytes", LONG, -1, "Bytes of frames being received, or large and in work; -1: 512 MiB."
    ),
    ConfigKey("socket.listen.backlog.size", INT, 1024, "Pending connections.", _at_least_1),
    ConfigKey("fetch.max.bytes", INT, 57_671_680, "Most bytes of one fetch response.", between(1024)),
    ConfigKey("max.incremental.fetch.session.cache.slots", INT, 1000, "Fetch sessions kept.", _at_least_0),
    ConfigKey("auto.create.topics.enable", BOOL, True, "Make a topic that a client asks for."),
    ConfigKey("delete.topic.enable", BOOL, True, "Allow DeleteTopics."),
    ConfigKey("num.partitions", INT, 1, "Partitions of a new topic.", _at_least_1),
    ConfigKey(
        "max.request.partition.size.limit",
        INT,
        MAX_DESCRIBED_PARTITIONS,
        "Most partitions of one DescribeTopicPartitions answer.",
        _at_least_1,
    ),
    ConfigKey("default.replication.factor", INT, 1, "Replicas of a new topic."),
    ConfigKey(
        "unstable.api.versions.enable",
        BOOL,
        False,
        "Offer versions that Apache Kafka may still change: InitProducerId 6, for two-phase commit.",
        internal=True,
    ),
)

LOG: Final = (
    ConfigKey("message.max.bytes", INT, 1_048_588, "Largest record batch.", _at_least_0),
    ConfigKey(
        "log.segment.bytes", INT, 1_073_741_824, "Size at which a segment is rolled.", between(SMALLEST_SEGMENT_BYTES)
    ),
    ConfigKey("log.roll.ms", LONG, None, "Age at which a segment is rolled.", _at_least_1),
    ConfigKey("log.roll.hours", INT, 168, "Age at which a segment is rolled, in hours.", _at_least_1),
    ConfigKey("log.retention.ms", LONG, None, "Age after which a segment goes; -1 for never."),
    ConfigKey("log.retention.minutes", INT, None, "The same in minutes."),
    ConfigKey("log.retention.hours", INT, 168, "The same in hours."),
    ConfigKey("log.retention.bytes", LONG, -1, "Bytes of a partition above which old segments go."),
    ConfigKey("log.retention.check.interval.ms", LONG, 300_000, "How often retention looks.", _at_least_1),
    ConfigKey("log.cleanup.policy", LIST, ("delete",), "delete, compact, both, or neither.", CLEANUP_POLICY),
    ConfigKey("log.cleaner.enable", BOOL, True, "Clean compacted topics."),
    ConfigKey("log.cleaner.backoff.ms", LONG, 15_000, "How often to look which logs are to be cleaned.", _at_least_0),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        134_217_728,
        "Memory for keys, 24 bytes each; no more is taken than a log needs. With more keys there are several passes.",
        between(1_048_576),
    ),
    ConfigKey("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, "To which part it is filled.", between(0, 1)),
    ConfigKey("log.cleaner.io.buffer.size", INT, 524_288, "Memory for reading and writing.", _at_least_0),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        1.7976931348623157e308,
        "Most bytes that the cleaner reads and writes.",
        between(1),
    ),
    ConfigKey(
        "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, "A log is cleaned when more of it is dirty.", between(0, 1)
    ),
    ConfigKey("log.cleaner.min.compaction.lag.ms", LONG, 0, "Least time for which every record is kept.", _at_least_0),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        _LONG_MAX,
        "Time after which a log is cleaned, however little of it is dirty.",
        _at_least_1,
    ),
    ConfigKey(
        "log.cleaner.delete.retention.ms",
        LONG,
        86_400_000,
        "How long tombstones and transaction markers stay after the first cleaning.",
        _at_least_0,
    ),
    ConfigKey("log.index.size.max.bytes", INT, 10_485_760, "Largest offset index.", between(4)),
    ConfigKey("log.index.interval.bytes", INT, 4096, "Log bytes between index entries.", _at_least_0),
    ConfigKey(
        "log.flush.interval.messages",
        LONG,
        _LONG_MAX,
        "So many unsynced records of a partition are synced before they are acknowledged; 1 for all. "
        "Else records are acknowledged from the page cache, and flushed once a minute.",
        _at_least_1,
    ),
    ConfigKey(
        "log.flush.interval.ms",
        LONG,
        None,
        "Records are synced after this, if log.flush.scheduler.interval.ms looks; else once a minute.",
        _at_least_0,
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        INT,
        2,
        "Threads that bring the logs to the device at a stop in order, 64 at most. A start uses one.",
        _at_least_1,
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms",
        LONG,
        _LONG_MAX,
        "How often to look which records have waited for flush.ms.",
        _at_least_1,
    ),
    ConfigKey(
        "log.message.timestamp.type",
        STR,
        "CreateTime",
        "Whose clock stamps records.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    ConfigKey("log.message.timestamp.before.max.ms", LONG, _LONG_MAX, "Oldest accepted timestamp.", _at_least_0),
    ConfigKey("log.message.timestamp.after.max.ms", LONG, _HOUR_MS, "Newest accepted timestamp.", _at_least_0),
    ConfigKey(
        "compression.type",
        STR,
        "producer",
        "What clients' batches are compressed with, whatever they came with; producer: they stay as they are.",
        CODECS,
    ),
    ConfigKey("compression.gzip.level", INT, -1, "1 to 9; -1: gzip's default.", gzip_level),
    ConfigKey("compression.zstd.level", INT, 3, "-131072 to 22.", ZSTD_LEVEL),
    ConfigKey("producer.id.expiration.ms", INT, 86_400_000, "Forget idle producers after this.", _at_least_1),
    ConfigKey(
        "producer.id.expiration.check.interval.ms", INT, 600_000, "How often to look.", _at_least_1, internal=True
    ),
)

GROUP: Final = (
    ConfigKey("group.min.session.timeout.ms", INT, 6_000, "Shortest session timeout."),
    ConfigKey("group.max.session.timeout.ms", INT, 1_800_000, "Longest session timeout."),
    ConfigKey("group.initial.rebalance.delay.ms", INT, 3_000, "Wait for more members at first."),
    ConfigKey("group.max.size", INT, _INT_MAX, "Most members of one group.", _at_least_1),
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        LIST,
        ("classic", "consumer", "streams"),
        "Kinds of groups; `classic` cannot be left out, `share` and `streams` are not there yet.",
        each_of("consumer", "classic", "share", "streams"),
    ),
    ConfigKey("group.consumer.session.timeout.ms", INT, 45_000, "A silent member is expelled.", _at_least_1),
    ConfigKey("group.consumer.min.session.timeout.ms", INT, 45_000, "Shortest for a group of its own.", _at_least_1),
    ConfigKey("group.consumer.max.session.timeout.ms", INT, 60_000, "Longest for a group of its own.", _at_least_1),
    ConfigKey("group.consumer.heartbeat.interval.ms", INT, 5_000, "How often members tell they live.", _at_least_1),
    ConfigKey("group.consumer.min.heartbeat.interval.ms", INT, 5_000, "Shortest for a group of its own.", _at_least_1),
    ConfigKey("group.consumer.max.heartbeat.interval.ms", INT, 15_000, "Longest for a group of its own.", _at_least_1),
    ConfigKey("group.consumer.assignment.interval.ms", INT, 1_000, "Least time between two assignments.", _at_least_0),
    ConfigKey("group.consumer.min.assignment.interval.ms", INT, 0, "Least for a group of its own.", _at_least_0),
    ConfigKey("group.consumer.max.assignment.interval.ms", INT, 15_000, "Most for a group of its own.", _at_least_0),
    ConfigKey("group.consumer.max.size", INT, _INT_MAX, "Most members of one consumer group.", _at_least_1),
    ConfigKey(
        "group.consumer.assignors",
        LIST,
        ("uniform", "range"),
        "Assignors of the server's side; the first is the default. `module:Class` names one in Python; its module is "
        "installed, or on PYTHONPATH.",
        not_empty,
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        STR,
        "bidirectional",
        "May groups change their protocol while they have members: upgrade, downgrade, bidirectional, disabled.",
        one_of("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL", any_case=True),
    ),
    ConfigKey(
        "group.consumer.regex.refresh.interval.ms",
        INT,
        600_000,
        "How often regular expressions are matched again.",
        between(10_000),
        internal=True,
    ),
    ConfigKey(
        "group.events.enable", BOOL, True, "Write the history of groups to __ottla_group_events. (Not a key of Kafka.)"
    ),
    ConfigKey(
        "group.events.retention.ms", LONG, 604_800_000, "How long it is kept; -1: for ever. (Not Kafka's.)", between(-1)
    ),
    ConfigKey(
        "group.events.retention.bytes",
        LONG,
        67_108_864,
        "How much of it is kept; -1: without limit. Both are given to the topic when it is made. (Not Kafka's.)",
        between(-1),
    ),
    ConfigKey("offsets.topic.num.partitions", INT, 50, "Partitions of __consumer_offsets.", _at_least_1),
    ConfigKey("offsets.topic.segment.bytes", INT, 104_857_600, "Its segment size.", between(SMALLEST_SEGMENT_BYTES)),
    ConfigKey("offset.metadata.max.bytes", INT, 4096, "Largest metadata string of a commit."),
    ConfigKey("offsets.retention.minutes", INT, 10_080, "Offsets of an empty group go after this.", _at_least_1),
    ConfigKey("offsets.retention.check.interval.ms", LONG, 600_000, "How often to look.", _at_least_1),
)

TRANSACTION: Final = (
    ConfigKey("transaction.max.timeout.ms", INT, 900_000, "Longest transaction timeout.", _at_least_1),
    ConfigKey("transactional.id.expiration.ms", INT, 604_800_000, "Forget idle ids after this.", _at_least_1),
    ConfigKey("transaction.state.log.num.partitions", INT, 50, "Partitions of __transaction_state.", _at_least_1),
    ConfigKey(
        "transaction.state.log.segment.bytes", INT, 104_857_600, "Its segment size.", between(SMALLEST_SEGMENT_BYTES)
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, "How often to look.", _at_least_1
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        BOOL,
        False,
        "Transactions without a timeout (KIP-939), for clients that ask. Needs unstable.api.versions.enable.",
    ),
    ConfigKey("transaction.partition.verification.enable", BOOL, True, "Check older clients' writes (KIP-890)."),
)

#: The class is Kafka's name for what our authorizer does. Its two settings have no effect without it.
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OF_THE_AUTHORIZER: Final = ("super.users", "allow.everyone.if.no.acl.found", "audit.log.allowed", "audit.log.path")

ACCESS: Final = (
    ConfigKey(
        "authorizer.class.name",
        STR,
        "",
        "Who may do what is said by ACLs; empty: everybody may do everything.",
        one_of("", STANDARD_AUTHORIZER),
    ),
    ConfigKey("super.users", STR, None, "Who may do everything: principals, with ; between them (User:a;User:b)."),
    ConfigKey("allow.everyone.if.no.acl.found", BOOL, False, "Everybody may use a resource that no ACL is about."),
    ConfigKey(
        "audit.log.path", STR, None, "A file for the audit log; without it goes where logs go. (Not a key of Kafka.)"
    ),
    ConfigKey(
        "audit.log.allowed",
        BOOL,
        False,
        "The audit log has what was allowed, too, not only what was refused. (Not a key of Kafka.)",
    ),
)

QUOTA: Final = (
    ConfigKey("quota.window.num", INT, 11, "Windows over which the use of quotas is measured.", _at_least_1),
    ConfigKey("quota.window.size.seconds", INT, 1, "How long each of them is.", _at_least_1),
    ConfigKey("controller.quota.window.num", INT, 11, "The same for changes of topics: with", _at_least_1),
    ConfigKey(
        "controller.quota.window.size.seconds",
        INT,
        1,
        "this it says how many seconds' worth may be used at once.",
        _at_least_1,
    ),
)

#: Keys that are one setting in several units. The first one that has a value counts.
FAMILIES: Final = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)

BROKER_CONFIG: Final = ConfigSet.of(
    "broker", (*NODE, *TLS, *SASL, *OAUTH, *LOG, *GROUP, *TRANSACTION, *ACCESS, *QUOTA, *ACCEPTED)
)

"""The broker's configuration keys: Kafka's names, types and defaults.

Deviations from Kafka 4.3's defaults, because one node is the whole cluster: replication factors default to 1,
`node.id` to 1, `log.dirs` to `ottla-data`; and because nobody is asked who they are, `listeners` is this machine
alone. Keys of `NO_EFFECT` are accepted so that a Kafka `server.properties` can be
used as it is; they govern parts (KRaft quorum, thread pools, replication) that one process does not have.
"""

from typing import Final

from ottla.base.config import ConfigKey, ConfigSet, ConfigType, between, not_empty, one_of
from ottla.base.limits import MAX_REQUEST_BYTES

_INT, _LONG, _BOOL, _STR, _LIST = (
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.LIST,
)
_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
_HOUR_MS: Final = 3_600_000
_at_least_0, _at_least_1 = between(0), between(1)
_CODEC = one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_POLICY = one_of("delete", "compact", "delete,compact", "compact,delete")

NODE: Final = (
    ConfigKey("node.id", _INT, 1, "This broker's id.", _at_least_0, ("broker.id",)),
    ConfigKey("cluster.id", _STR, None, "Cluster id of a new data directory; 22 characters of base64."),
    ConfigKey("broker.rack", _STR, None, "This broker's rack, told to clients."),
    ConfigKey(
        "listeners", _LIST, ("PLAINTEXT://127.0.0.1:9092",), "Where to listen; the first PLAINTEXT one.", not_empty
    ),
    ConfigKey("advertised.listeners", _LIST, None, "The address told to clients; default: the listener's own."),
    ConfigKey("log.dirs", _LIST, ("ottla-data",), "The data directory.", not_empty, ("log.dir",)),
    ConfigKey("max.connections", _INT, _INT_MAX, "Connections at one time.", _at_least_0),
    ConfigKey("connections.max.idle.ms", _LONG, 600_000, "Idle connections are closed after this time."),
    ConfigKey("socket.request.max.bytes", _INT, MAX_REQUEST_BYTES, "Largest request.", _at_least_1),
    ConfigKey("socket.listen.backlog.size", _INT, 1024, "Pending connections.", _at_least_1),
    ConfigKey("fetch.max.bytes", _INT, 57_671_680, "Most bytes of one fetch response.", between(1024)),
    ConfigKey("max.incremental.fetch.session.cache.slots", _INT, 1000, "Fetch sessions kept.", _at_least_0),
    ConfigKey("auto.create.topics.enable", _BOOL, True, "Make a topic that a client asks for."),
    ConfigKey("delete.topic.enable", _BOOL, True, "Allow DeleteTopics."),
    ConfigKey("num.partitions", _INT, 1, "Partitions of a new topic.", _at_least_1),
    ConfigKey("default.replication.factor", _INT, 1, "Replicas of a new topic.", _at_least_1),
    ConfigKey("background.threads", _INT, 10, "Accepted; one event loop does the work.", _at_least_1),
)

LOG: Final = (
    ConfigKey("message.max.bytes", _INT, 1_048_588, "Largest record batch.", _at_least_0),
    ConfigKey("compression.type", _STR, "producer", "Accepted; batches stay as the producer compressed them.", _CODEC),
    ConfigKey("min.insync.replicas", _INT, 1, "Replicas that must acknowledge.", _at_least_1),
    ConfigKey("unclean.leader.election.enable", _BOOL, False, "Without effect on one node."),
    ConfigKey("log.segment.bytes", _INT, 1_073_741_824, "Size at which a segment is rolled.", between(14)),
    ConfigKey("log.roll.ms", _LONG, None, "Age at which a segment is rolled.", _at_least_1),
    ConfigKey("log.roll.hours", _INT, 168, "Age at which a segment is rolled, in hours.", _at_least_1),
    ConfigKey("log.roll.jitter.ms", _LONG, None, "Accepted; segments roll without jitter.", _at_least_0),
    ConfigKey("log.roll.jitter.hours", _INT, 0, "Accepted; segments roll without jitter.", _at_least_0),
    ConfigKey("log.retention.ms", _LONG, None, "Age after which a segment goes; -1 for never.", between(-1)),
    ConfigKey("log.retention.minutes", _INT, None, "The same in minutes.", between(-1)),
    ConfigKey("log.retention.hours", _INT, 168, "The same in hours.", between(-1)),
    ConfigKey("log.retention.bytes", _LONG, -1, "Bytes of a partition above which old segments go.", between(-1)),
    ConfigKey("log.retention.check.interval.ms", _LONG, 300_000, "How often retention looks.", _at_least_1),
    ConfigKey("log.cleanup.policy", _STR, "delete", "delete, compact, or both.", _POLICY),
    ConfigKey("log.segment.delete.delay.ms", _LONG, 60_000, "Wait before a segment's files go.", _at_least_0),
    ConfigKey("log.index.size.max.bytes", _INT, 10_485_760, "Largest offset index.", between(4)),
    ConfigKey("log.index.interval.bytes", _INT, 4096, "Log bytes between index entries.", _at_least_0),
    ConfigKey("log.flush.interval.messages", _LONG, _LONG_MAX, "Accepted; the page cache is trusted.", _at_least_1),
    ConfigKey("log.flush.interval.ms", _LONG, None, "Accepted; the page cache is trusted.", _at_least_0),
    ConfigKey("log.flush.scheduler.interval.ms", _LONG, _LONG_MAX, "Accepted; the page cache is trusted."),
    ConfigKey("log.preallocate", _BOOL, False, "Accepted; files grow as they are written."),
    ConfigKey("log.message.timestamp.type", _STR, "CreateTime", "", one_of("CreateTime", "LogAppendTime")),
    ConfigKey("log.message.timestamp.before.max.ms", _LONG, _LONG_MAX, "Oldest accepted timestamp.", _at_least_0),
    ConfigKey("log.message.timestamp.after.max.ms", _LONG, _HOUR_MS, "Newest accepted timestamp.", _at_least_0),
    ConfigKey("log.cleaner.enable", _BOOL, True, "Compact the partitions that ask for it."),
    ConfigKey("log.cleaner.backoff.ms", _LONG, 15_000, "How often compaction looks.", _at_least_0),
    ConfigKey("log.cleaner.delete.retention.ms", _LONG, 86_400_000, "How long tombstones stay.", _at_least_0),
    ConfigKey("log.cleaner.min.compaction.lag.ms", _LONG, 0, "Age before compaction.", _at_least_0),
    ConfigKey("log.cleaner.max.compaction.lag.ms", _LONG, _LONG_MAX, "Age that forces compaction.", _at_least_1),
    ConfigKey("log.cleaner.min.cleanable.ratio", ConfigType.DOUBLE, 0.5, "Dirty share to compact.", between(0, 1)),
    ConfigKey("producer.id.expiration.ms", _INT, 86_400_000, "Forget idle producers after this.", _at_least_1),
    ConfigKey("producer.id.expiration.check.interval.ms", _INT, 600_000, "How often to look.", _at_least_1),
)

GROUP: Final = (
    ConfigKey("group.min.session.timeout.ms", _INT, 6_000, "Shortest session timeout.", _at_least_1),
    ConfigKey("group.max.session.timeout.ms", _INT, 1_800_000, "Longest session timeout.", _at_least_1),
    ConfigKey("group.initial.rebalance.delay.ms", _INT, 3_000, "Wait for more members at first.", _at_least_0),
    ConfigKey("group.max.size", _INT, _INT_MAX, "Most members of one group.", _at_least_1),
    ConfigKey("offsets.topic.num.partitions", _INT, 50, "Partitions of __consumer_offsets.", _at_least_1),
    ConfigKey("offsets.topic.replication.factor", _INT, 1, "At most the number of nodes is used.", _at_least_1),
    ConfigKey("offsets.topic.segment.bytes", _INT, 104_857_600, "Its segment size.", _at_least_1),
    ConfigKey("offsets.topic.compression.codec", _INT, 0, "Accepted; records are small.", _at_least_0),
    ConfigKey("offsets.load.buffer.size", _INT, 5_242_880, "Bytes read at once while loading.", _at_least_1),
    ConfigKey("offset.metadata.max.bytes", _INT, 4096, "Largest metadata string of a commit."),
    ConfigKey("offsets.retention.minutes", _INT, 10_080, "Offsets of an empty group go after this.", _at_least_1),
    ConfigKey("offsets.retention.check.interval.ms", _LONG, 600_000, "How often to look.", _at_least_1),
    ConfigKey("offsets.commit.timeout.ms", _INT, 5_000, "Accepted; one node acknowledges at once.", _at_least_1),
)

TRANSACTION: Final = (
    ConfigKey("transaction.max.timeout.ms", _INT, 900_000, "Longest transaction timeout.", _at_least_1),
    ConfigKey("transactional.id.expiration.ms", _INT, 604_800_000, "Forget idle ids after this.", _at_least_1),
    ConfigKey("transaction.state.log.num.partitions", _INT, 50, "Partitions of __transaction_state.", _at_least_1),
    ConfigKey("transaction.state.log.replication.factor", _INT, 1, "At most the nodes there are.", _at_least_1),
    ConfigKey("transaction.state.log.min.isr", _INT, 1, "Replicas that must acknowledge.", _at_least_1),
    ConfigKey("transaction.state.log.segment.bytes", _INT, 104_857_600, "Its segment size.", _at_least_1),
    ConfigKey("transaction.state.log.load.buffer.size", _INT, 5_242_880, "Read at once in loading.", _at_least_1),
    ConfigKey("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, 10_000, "", _at_least_1),
    ConfigKey("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, 3_600_000, "", _at_least_1),
    ConfigKey("transaction.two.phase.commit.enable", _BOOL, False, "Transactions without a timeout (KIP-939)."),
    ConfigKey("transaction.partition.verification.enable", _BOOL, True, "Check older clients' writes (KIP-890)."),
)


def _no_effect(kind: ConfigType, *names: str) -> tuple[ConfigKey, ...]:
    return tuple(
        ConfigKey(name, kind, None, "Accepted for Kafka's sake; without effect on one node.") for name in names
    )


NO_EFFECT: Final = (
    *_no_effect(
        _STR,
        "process.roles",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "controller.listener.names",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "metadata.log.dir",
    ),
    *_no_effect(
        _INT,
        "num.network.threads",
        "num.io.threads",
        "num.replica.fetchers",
        "num.recovery.threads.per.data.dir",
        "queued.max.requests",
        "socket.send.buffer.bytes",
        "socket.receive.buffer.bytes",
        "log.cleaner.threads",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.num.partitions",
    ),
    *_no_effect(_LONG, "replica.lag.time.max.ms", "log.cleaner.dedupe.buffer.size"),
    *_no_effect(_BOOL, "auto.leader.rebalance.enable", "controlled.shutdown.enable"),
)

BROKER_CONFIG: Final = ConfigSet.of("broker", (*NODE, *LOG, *GROUP, *TRANSACTION, *NO_EFFECT))

"""The options of `format("ottla")`: the names of Spark's own Kafka connector, checked, and a few of ours.

Spark gives option names in lower case, so they are compared that way. `kafka.` options are Kafka's client keys, checked
by the same tables as the client's own; an unknown option or key is an error that names the nearest one. Pure.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from ottla.base.config import ConfigKey, ConfigSet, ConfigType, Standing, between, one_of
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.client.config import COMMON_KEYS, CommonConfig, build, client_keys
from ottla.client.config.consumer import CONSUMER_CONFIG
from ottla.client.config.producer import PRODUCER_CONFIG
from ottla.client.config.security import Security
from ottla.spark.bounds import EARLIEST, LATEST, AtOffsets, AtTimes, Bound
from ottla.spark.ids import PREFIX, TOPIC_PREFIX
from ottla.spark.option_values import assigned, duration_ms, json_offsets
from ottla.spark.patterns import topic_pattern
from ottla.spark.plan import Cut
from ottla.spark.sink_client import sink_client, sink_id

_TEXT, _WHOLE, _FLAG = ConfigType.STRING, ConfigType.LONG, ConfigType.BOOLEAN
_POSITIVE = between(1)
_LONGEST_QUERY_ID = 500
#: `minRecordsPerPartition` when nobody says.
_SHARED_BELOW = 100

SOURCE_OPTIONS = ConfigSet.of(
    "source",
    (
        ConfigKey("subscribe", _TEXT, None, "Topics, separated by commas"),
        ConfigKey("subscribePattern", _TEXT, None, "A regular expression in Java's syntax, found in a topic's name"),
        ConfigKey("assign", _TEXT, None, 'Partitions: {"topic":[0,1]}'),
        ConfigKey(
            "startingOffsets", _TEXT, None, 'earliest, latest, or {"topic":{"0":23,"1":-2}} (-2 earliest, -1 latest)'
        ),
        ConfigKey("endingOffsets", _TEXT, None, "latest or JSON; batch reads only"),
        ConfigKey("startingTimestamp", _WHOLE, None, "Milliseconds since the epoch", between(0)),
        ConfigKey("endingTimestamp", _WHOLE, None, "Milliseconds since the epoch; batch reads only", between(0)),
        ConfigKey("startingOffsetsByTimestamp", _TEXT, None, '{"topic":{"0":milliseconds}}'),
        ConfigKey("endingOffsetsByTimestamp", _TEXT, None, '{"topic":{"0":milliseconds}}; batch reads only'),
        ConfigKey(
            "startingOffsetsByTimestampStrategy",
            _TEXT,
            "error",
            "When a partition has nothing that late",
            one_of("error", "latest", any_case=True),
        ),
        ConfigKey("maxOffsetsPerTrigger", _WHOLE, None, "Most offsets in a micro-batch", _POSITIVE),
        ConfigKey("minOffsetsPerTrigger", _WHOLE, None, "A micro-batch waits for so many offsets", _POSITIVE),
        ConfigKey("maxTriggerDelay", _TEXT, "15m", "... but not longer than this"),
        ConfigKey("minPartitions", _WHOLE, None, "Split large ranges until there are so many tasks", _POSITIVE),
        ConfigKey("maxRecordsPerPartition", _WHOLE, None, "Most offsets in one task", _POSITIVE),
        ConfigKey(
            "minRecordsPerPartition",
            _WHOLE,
            None,
            "A task takes further partitions of Kafka until it has so many offsets: 100, or 1 with minPartitions",
            _POSITIVE,
        ),
        ConfigKey("failOnDataLoss", _FLAG, True, "Stop when records are gone that were not read"),
        ConfigKey("includeHeaders", _FLAG, False, "Add the headers column"),
        ConfigKey("commitOffsets", _TEXT, "sink", "Who commits kafka.group.id's offsets", one_of("sink", "source")),
        # Scripts for Spark's own connector may set these. They are accepted and change nothing here.
        *(ConfigKey(name, _TEXT, None) for name in ("groupIdPrefix", "kafkaConsumer.pollTimeoutMs")),
        *(ConfigKey(name, _TEXT, None) for name in ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs")),
    ),
)

SINK_OPTIONS = ConfigSet.of(
    "sink",
    (
        ConfigKey("topic", _TEXT, None, "Where rows go, unless they have a topic column"),
        ConfigKey("semantics", _TEXT, "exactly-once", "What a crash may do", one_of("exactly-once", "at-least-once")),
        ConfigKey(
            "atomicity",
            _TEXT,
            "slot",
            "What becomes visible at one moment: what one task has written, or the batch, which the driver copies",
            one_of("slot", "batch"),
        ),
        ConfigKey("sink.id", _TEXT, None, "Names the sink over restarts; default: from the query's name or checkpoint"),
        ConfigKey("ledger.topic", _TEXT, f"{TOPIC_PREFIX}ledger", "Where sinks note what they have committed"),
        ConfigKey(
            "ledger.replication.factor", _WHOLE, -1, "If the ledger topic has to be made; -1: the broker's default"
        ),
        ConfigKey(
            "two.phase.commit",
            _TEXT,
            "auto",
            "Whether slots are transactions without a time-out (KIP-939): where the broker has them, always, or never",
            one_of("auto", "required", "off"),
        ),
        ConfigKey(
            "includeHeaders",
            _FLAG,
            True,
            "As in Spark's connector: a column headers is written whatever this says",
            standing=Standing.WITHOUT_EFFECT,
        ),
        ConfigKey("checkpointLocation", _TEXT, None, "Spark's"),
        ConfigKey("queryName", _TEXT, None, "Spark's"),
        ConfigKey(
            "queryId",
            _TEXT,
            None,
            "Of a batch write that may be run again: the job it belongs to. With batchId, or neither",
        ),
        ConfigKey("batchId", _WHOLE, None, "The number of that write, which grows from write to write", between(0)),
    ),
)

_SOURCE_KEYS = (
    ConfigKey("group.id", _TEXT, None, "The group whose offsets show how far the query is"),
    ConfigKey(
        "isolation.level",
        _TEXT,
        "read_committed",
        "Whether records of open and aborted transactions are read",
        one_of("read_committed", "read_uncommitted"),
    ),
    ConfigKey("fetch.max.wait.ms", ConfigType.INT, 500, "Longest wait of a fetch", between(0)),
    ConfigKey("fetch.max.bytes", ConfigType.INT, 52_428_800, "Most bytes of one fetch", between(1)),
    ConfigKey("max.partition.fetch.bytes", ConfigType.INT, 8_388_608, "Most bytes of one partition", between(1)),
    ConfigKey(
        "metadata.max.age.ms",
        ConfigType.LONG,
        60_000,
        "How old metadata may be; a streaming query looks for new partitions each second",
        between(0),
    ),
    ConfigKey("default.api.timeout.ms", ConfigType.INT, 60_000, "Longest a request is repeated", between(0)),
)
#: Keys of a consumer that would contradict the source, each with what says the same here.
_REFUSED_IN_SOURCE: Mapping[str, tuple[object, str]] = {
    "auto.offset.reset": (None, "startingOffsets says where a query begins, its checkpoint where it goes on"),
    "enable.auto.commit": (False, "the checkpoint has the offsets; with kafka.group.id the sink commits them, too"),
    "key.deserializer": (None, "keys are bytes: cast them in the query"),
    "value.deserializer": (None, "values are bytes: cast them in the query"),
}


def _of_the_source(key: ConfigKey) -> ConfigKey:
    """A consumer's key that the source does not use."""
    if key.name in _REFUSED_IN_SOURCE:
        default, why = _REFUSED_IN_SOURCE[key.name]
        return replace(key, default=default, doc=why, validator=None, standing=Standing.DEFAULT_ONLY)
    if key.standing is Standing.IN_FORCE:
        return replace(key, doc="a query has no member of a group, and reads ranges", standing=Standing.WITHOUT_EFFECT)
    return key


#: Every key of a consumer is known.
SOURCE_CLIENT = client_keys(
    "kafka.",
    (
        *_SOURCE_KEYS,
        *(
            _of_the_source(key)
            for name, key in CONSUMER_CONFIG.keys.items()
            if name not in {each.name for each in (*_SOURCE_KEYS, *COMMON_KEYS)}
        ),
    ),
)


#: Ends a sentence about a topic that rows must not go to.
NO_ROWS_IN_A_LEDGER = "a ledger: no sink could read it any more if rows were in it"


def is_ledger(topic: str, ledger_topic: str) -> bool:
    """Whether `topic` is, or may be, a ledger of sinks. `ledger_topic` is the option's."""
    return topic == ledger_topic or topic.startswith(TOPIC_PREFIX)


class Semantics(Enum):
    """What the sink promises about its output when something is killed, retried or replayed."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class SourceClient(CommonConfig):
    """The source's `kafka.` keys."""

    group_id: str | None
    isolation_level: str
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    default_api_timeout_ms: int


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """A checked set of source options."""

    #: Without what is about security: Spark pickles this, and secrets are read from `kafka` again where they are used.
    client: SourceClient
    #: The same keys as they were given, for clients that check them again. They may hold secrets.
    kafka: Mapping[str, object] = field(repr=False)
    topics: tuple[str, ...]
    pattern: str | None
    partitions: tuple[TopicPartition, ...]
    start: Bound
    end: Bound
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    cut: Cut
    fail_on_data_loss: bool
    include_headers: bool
    commit_here: bool


class Atomicity(Enum):
    """What is committed at one moment."""

    SLOT = "slot"
    BATCH = "batch"


class TwoPhaseCommit(Enum):
    """Whether the transactions of slots have no time-out (KIP-939)."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """A checked set of sink options. `client` are the producer's keys, which may hold secrets."""

    client: Mapping[str, object] = field(repr=False)
    topic: str | None
    semantics: Semantics
    atomicity: Atomicity
    two_phase: TwoPhaseCommit
    sink_id: str
    ledger_topic: str
    ledger_replication: int
    group_id: str | None
    checkpoint: str | None
    query_name: str | None
    query_id: str | None
    batch_id: int | None


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check `given`. Raises ConfigError naming the option."""
    own, kafka = _parse(SOURCE_OPTIONS, given, SOURCE_CLIENT.keys)
    _require_group(kafka.get("group.id"))
    client = build(SourceClient, SOURCE_CLIENT, kafka)
    if own["commitOffsets"] == "source" and client.group_id is None:
        raise ConfigError("commitOffsets=source needs the option kafka.group.id: the group whose offsets it commits")
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if own[name] is not None]
    if len(chosen) != 1:
        raise ConfigError(
            f"give exactly one of subscribe, subscribePattern and assign (given: {', '.join(chosen) or 'none'})"
        )
    ends = [n for n in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp") if own[n] is not None]
    if streaming and ends:
        raise ConfigError(f"{ends[0]} is for batch reads; a streaming query has no end")
    least, most = _int(own["minOffsetsPerTrigger"]), _int(own["maxOffsetsPerTrigger"])
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")
    start = _start(own, streaming=streaming)
    if not streaming and isinstance(start, AtOffsets) and LATEST in (start.others, *start.named.values()):
        raise ConfigError("startingOffsets can't be latest (-1) for batch reads: there would be nothing to read")
    return SourceOptions(
        client=replace(client, security=Security()),
        kafka={"metadata.max.age.ms": client.metadata_max_age_ms, **kafka},
        topics=_names(own["subscribe"]),
        pattern=_pattern(own["subscribePattern"]),
        partitions=assigned(own["assign"]),
        start=start,
        end=_end(own),
        max_offsets=most,
        min_offsets=least,
        max_delay_ms=duration_ms("maxTriggerDelay", str(own["maxTriggerDelay"])),
        cut=_cut(own),
        fail_on_data_loss=bool(own["failOnDataLoss"]),
        include_headers=bool(own["includeHeaders"]),
        commit_here=own["commitOffsets"] == "source",
    )


def _require_group(name: object) -> None:
    """Raise ConfigError for a group that has no name."""
    if name is not None and not str(name).strip():
        raise ConfigError("kafka.group.id is empty: name the group whose offsets are to be committed, or leave it out")


def _cut(own: Mapping[str, object]) -> Cut:
    wished, least = _int(own["minPartitions"]), _int(own["minRecordsPerPartition"])
    most = _int(own["maxRecordsPerPartition"])
    if wished is not None and least is not None and least > 1:
        raise ConfigError(
            f"minRecordsPerPartition {least} lets partitions share a task, minPartitions {wished} wants many: give one"
        )
    if most is not None and least is not None and least > most:
        raise ConfigError(f"minRecordsPerPartition {least} is above maxRecordsPerPartition {most}")
    return Cut(wished, most, least or _SHARED_BELOW if wished is None else 1)


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check `given`. Raises ConfigError naming the option."""
    own, kafka = _parse(SINK_OPTIONS, given, (*PRODUCER_CONFIG.keys, "group.id"))
    group = kafka.pop("group.id", None)
    _require_group(group)
    if (own["queryId"] is None) != (own["batchId"] is None):
        alone, other = ("queryId", "batchId") if own["batchId"] is None else ("batchId", "queryId")
        raise ConfigError(
            f"the option {alone} says nothing without {other}: give both, and a write that is run again under the same "
            "two is skipped, or neither"
        )
    query_id = _text(own["queryId"])
    if query_id is not None and (not query_id or query_id.startswith(PREFIX)):
        raise ConfigError(
            f"queryId {query_id!r}: it must not be empty, and names that begin with {PREFIX} are Ottla's own"
        )
    if query_id is not None and len(query_id) > _LONGEST_QUERY_ID:
        raise ConfigError(
            f"queryId has {len(query_id)} characters, and at most {_LONGEST_QUERY_ID} are allowed: a record of each "
            "stays in the ledger"
        )
    topic, ledger = _text(own["topic"]), str(own["ledger.topic"])
    if topic is not None and is_ledger(topic, ledger):
        raise ConfigError(f"the option topic: {topic} is {NO_ROWS_IN_A_LEDGER}")
    semantics = Semantics(own["semantics"])
    return SinkOptions(
        client=sink_client(kafka, exactly_once=semantics is Semantics.EXACTLY_ONCE),
        topic=topic,
        semantics=semantics,
        atomicity=_atomicity(own, semantics),
        two_phase=TwoPhaseCommit(own["two.phase.commit"]),
        sink_id=sink_id(own) if semantics is Semantics.EXACTLY_ONCE else "",
        ledger_topic=ledger,
        ledger_replication=int(str(own["ledger.replication.factor"])),
        group_id=_text(group),
        checkpoint=_text(own["checkpointLocation"]),
        query_name=_text(own["queryName"]),
        query_id=query_id,
        batch_id=_int(own["batchId"]),
    )


def _atomicity(own: Mapping[str, object], semantics: Semantics) -> Atomicity:
    """Raises ConfigError if the options contradict each other."""
    chosen = Atomicity(own["atomicity"])
    if chosen is Atomicity.BATCH and semantics is Semantics.AT_LEAST_ONCE:
        raise ConfigError("atomicity=batch needs semantics=exactly-once: without transactions rows are seen one by one")
    if chosen is Atomicity.BATCH and own["two.phase.commit"] == "required":
        raise ConfigError(
            "two.phase.commit=required is for transactions that wait for others; with atomicity=batch there is one, "
            "which waits for none: leave the option out"
        )
    return chosen


def _names_of_both(given: Mapping[str, str]) -> frozenset[str]:
    """Our options of source and sink, for a view that names a topic to read and one to write; else none."""
    lower = {name.lower() for name in given}
    if not {"subscribe", "subscribepattern", "assign"} & lower or not {"topic", "sink.id"} & lower:
        return frozenset()
    return frozenset(name.lower() for side in (SOURCE_OPTIONS, SINK_OPTIONS) for name in side.keys)


#: Every key of either side, as an option is compared. Those of the other side are accepted without effect: a script may
#: have one set of them for both, since a Java client only logs the keys that it does not know.
_KAFKA_KEYS = {f"kafka.{name}".lower(): name for name in (*SOURCE_CLIENT.keys, *PRODUCER_CONFIG.keys)}


#: What Spark adds of itself, or a script sets for Spark: `path` of tables, and intervals of what is refused below.
_FROM_SPARK = ("path", "paths", "asyncprogresstrackingcheckpointintervalms")
_REFUSED_EVERYWHERE = {
    "asyncprogresstrackingenabled": "Spark would note a micro-batch as done before it is committed, and plan others "
    "meanwhile; an exactly-once sink needs each plan in the checkpoint before its batch. Leave it out. Spark has it "
    "for its own Kafka sink alone"
}


def _parse(
    options: ConfigSet, given: Mapping[str, str], kafka_names: Iterable[str]
) -> tuple[dict[str, object], dict[str, object]]:
    """The options' values with defaults, and as given the `kafka.` keys that this side has."""
    known = {name.lower(): name for name in options.keys}
    passed_over = {*_FROM_SPARK, *_names_of_both(given), *_KAFKA_KEYS}
    kafka_known = {f"kafka.{name}".lower(): name for name in kafka_names}
    own: dict[str, object] = {}
    kafka: dict[str, object] = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in known:
            own[known[lower]] = value
        elif lower in kafka_known:
            kafka[kafka_known[lower]] = value
        elif lower in _REFUSED_EVERYWHERE:
            if str(value).lower() != "false":
                raise ConfigError(f"{name}: {_REFUSED_EVERYWHERE[lower]}")
        elif lower not in passed_over:
            near = difflib.get_close_matches(lower, [*known, *_KAFKA_KEYS], n=1, cutoff=0.5)
            best = known.get(near[0]) or f"kafka.{_KAFKA_KEYS[near[0]]}" if near else None
            raise ConfigError(f"Unknown {options.what} option {name}" + (f"; did you mean {best}?" if best else ""))
    if not given:
        raise ConfigError(
            f"the {options.what} got no options: Spark gives a Python data source none of a table (CREATE TABLE … "
            "USING ottla OPTIONS …). Make a view of it (CREATE TEMPORARY VIEW … USING ottla OPTIONS …), or say them "
            "where it is read: FROM table WITH (…)"
        )
    if "bootstrap.servers" not in kafka:
        raise ConfigError(f"the {options.what} needs the option kafka.bootstrap.servers")
    return options.parse(own), kafka


def _start(own: Mapping[str, object], *, streaming: bool) -> Bound:
    latest = str(own["startingOffsetsByTimestampStrategy"]).lower() == "latest"
    timed = _timed(own, "starting", EARLIEST, late_is_latest=latest)
    if timed is not None:
        return timed
    text = "latest" if streaming else "earliest"
    if own["startingOffsets"] is not None:
        text = str(own["startingOffsets"])
    if text.lower() in ("earliest", "latest"):
        return AtOffsets("startingOffsets", {}, EARLIEST if text.lower() == "earliest" else LATEST)
    return AtOffsets("startingOffsets", json_offsets("startingOffsets", text, EARLIEST), EARLIEST)


def _end(own: Mapping[str, object]) -> Bound:
    timed = _timed(own, "ending", LATEST, late_is_latest=True)
    if timed is not None:
        return timed
    text = "latest" if own["endingOffsets"] is None else str(own["endingOffsets"])
    if text.lower() == "earliest":
        raise ConfigError("endingOffsets can't be earliest: there would be nothing to read")
    named = {} if text.lower() == "latest" else json_offsets("endingOffsets", text, LATEST)
    return AtOffsets("endingOffsets", named, LATEST)


def _timed(own: Mapping[str, object], side: str, others: int, *, late_is_latest: bool) -> AtTimes | None:
    """A bound by time, if one is given. As in Spark's connector a time comes before offsets, and one time for all
    partitions comes before single ones."""
    timestamp, by_partition = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    if own[timestamp] is not None:
        return AtTimes(timestamp, {}, int(str(own[timestamp])), late_is_latest)
    if own[by_partition] is not None:
        return AtTimes(by_partition, json_offsets(by_partition, str(own[by_partition]), 0), others, late_is_latest)
    return None


def _names(value: object) -> tuple[str, ...]:
    names = tuple(part.strip() for part in str(value or "").split(",") if part.strip())
    if value is not None and not names:
        raise ConfigError("subscribe names no topic")
    return names


def _pattern(value: object) -> str | None:
    if value == "":
        raise ConfigError("subscribePattern is empty: every topic would be meant; say .* if that is so")
    if value is not None:
        topic_pattern(str(value))
    return _text(value)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _int(value: object) -> int | None:
    return None if value is None else int(str(value))

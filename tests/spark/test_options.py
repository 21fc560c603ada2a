"""Options: the names of Spark's Kafka connector, and errors that say what to do."""

import pickle

import pytest

from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.client.config.consumer import CONSUMER_CONFIG
from ottla.client.config.producer import PRODUCER_CONFIG, producer_config
from ottla.spark.bounds import EARLIEST, LATEST, AtOffsets, AtTimes
from ottla.spark.option_values import duration_ms
from ottla.spark.options import SOURCE_CLIENT, Semantics, sink_options, source_options

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
SOURCE = {**SERVERS, "subscribe": "lines"}
SINK = {**SERVERS, "topic": "words", "sink.id": "words-1"}
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def test_s1_a_stream_begins_at_the_latest_and_a_batch_at_the_earliest() -> None:
    assert source_options(SOURCE, streaming=True).start == AtOffsets("startingOffsets", {}, LATEST)
    batch = source_options(SOURCE, streaming=False)
    assert batch.start == AtOffsets("startingOffsets", {}, EARLIEST)
    assert batch.end == AtOffsets("endingOffsets", {}, LATEST)


def test_s1_names_are_compared_as_spark_gives_them_in_lower_case() -> None:
    options = source_options({**SOURCE, "maxoffsetspertrigger": "7", "INCLUDEHEADERS": "true"}, streaming=True)
    assert (options.max_offsets, options.include_headers) == (7, True)


def test_s1_offsets_by_json_by_timestamp_and_by_one_timestamp() -> None:
    json_offsets = source_options({**SOURCE, "startingOffsets": '{"a":{"0":23,"1":-2}}'}, streaming=True)
    assert json_offsets.start == AtOffsets("startingOffsets", {A0: 23, A1: -2}, EARLIEST)
    by_time = source_options({**SOURCE, "startingOffsetsByTimestamp": '{"a":{"0":1000}}'}, streaming=True)
    assert by_time.start == AtTimes("startingOffsetsByTimestamp", {A0: 1000}, EARLIEST, late_is_latest=False)
    one_time = source_options({**SOURCE, "startingTimestamp": "1000", "startingOffsets": "latest"}, streaming=True)
    assert one_time.start == AtTimes("startingTimestamp", {}, 1000, late_is_latest=False)
    late = {**SOURCE, "startingTimestamp": "1000", "startingOffsetsByTimestampStrategy": "LATEST"}
    assert source_options(late, streaming=True).start == AtTimes("startingTimestamp", {}, 1000, late_is_latest=True)


def test_s1_partitions_that_an_end_does_not_name_end_at_their_latest() -> None:
    by_offset = source_options({**SOURCE, "endingOffsets": '{"a":{"0":23,"1":-1}}'}, streaming=False)
    assert by_offset.end == AtOffsets("endingOffsets", {A0: 23, A1: -1}, LATEST)
    by_time = source_options({**SOURCE, "endingOffsetsByTimestamp": '{"a":{"0":1000}}'}, streaming=False)
    assert by_time.end == AtTimes("endingOffsetsByTimestamp", {A0: 1000}, LATEST, late_is_latest=True)
    one_time = source_options({**SOURCE, "endingTimestamp": "1000"}, streaming=False)
    assert one_time.end == AtTimes("endingTimestamp", {}, 1000, late_is_latest=True)


def test_s1_partitions_are_assigned_by_json() -> None:
    options = source_options({**SERVERS, "assign": '{"a":[1,0]}'}, streaming=True)
    assert options.partitions == (A0, A1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "a"}, "needs the option kafka.bootstrap.servers"),
        (SERVERS, "exactly one of subscribe, subscribePattern and assign"),
        ({**SOURCE, "assign": "{}"}, "given: subscribe, assign"),
        ({**SOURCE, "startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({**SOURCE, "kafka.fetch.max.byte": "1"}, "did you mean kafka.fetch.max.bytes?"),
        ({**SOURCE, "startingOffsets": "newest"}, "startingOffsets: expected JSON"),
        ({**SOURCE, "startingOffsets": '{"a":{"0":-7}}'}, "startingOffsets: -7 for a-0 is below -2"),
        ({**SOURCE, "startingOffsets": '{"a":{"0":1.5}}'}, "startingOffsets: expected JSON"),
        ({**SOURCE, "startingOffsets": '{"a":{"0":true}}'}, "startingOffsets: expected JSON"),
        ({**SOURCE, "startingOffsets": '{"a":{"1_0":3}}'}, "startingOffsets: expected JSON"),
        ({**SOURCE, "startingOffsets": '{"a":{" 0":3}}'}, "startingOffsets: expected JSON"),
        ({**SOURCE, "startingOffsets": "[" * 100_000}, "startingOffsets: expected JSON"),
        ({**SOURCE, "startingTimestamp": "-1"}, "must be at least 0"),
        ({**SOURCE, "startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "-1 for a-0 is below 0"),
        (
            {**SOURCE, "startingOffsetsByTimestamp": '{"a":{"0":9223372036854775808}}'},
            "startingOffsetsByTimestamp: 9223372036854775808 for a-0 is above 9223372036854775807",
        ),
        ({**SOURCE, "startingOffsets": '{"a":{"0":9223372036854775808}}'}, "startingOffsets: 9223372036854775808 for"),
        ({**SOURCE, "startingTimestamp": "9223372036854775808"}, "startingTimestamp"),
        ({**SOURCE, "kafka.group.id": ""}, "kafka.group.id is empty"),
        ({**SOURCE, "kafka.group.id": "", "commitOffsets": "source"}, "kafka.group.id is empty"),
        ({**SOURCE, "commitOffsets": "source"}, "commitOffsets=source needs the option kafka.group.id"),
        ({**SOURCE, "endingOffsets": "latest"}, "is for batch reads"),
        ({**SOURCE, "maxOffsetsPerTrigger": "0"}, "must be at least 1"),
        ({**SOURCE, "minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "7"}, "8 is above maxOffsetsPerTrigger 7"),
        ({**SOURCE, "minRecordsPerPartition": "8", "minPartitions": "7"}, "minPartitions 7 wants many: give one"),
        (
            {**SOURCE, "minRecordsPerPartition": "8", "maxRecordsPerPartition": "7"},
            "8 is above maxRecordsPerPartition 7",
        ),
        ({**SOURCE, "kafka.isolation.level": "dirty"}, "read_committed"),
        ({**SERVERS, "subscribePattern": "("}, "is no regular expression"),
        ({**SERVERS, "subscribePattern": ""}, "subscribePattern is empty"),
        ({**SOURCE, "startingOffsets": ""}, "startingOffsets: expected JSON"),
        ({**SOURCE, "kafka.auto.offset.reset": "earliest"}, "startingOffsets says where a query begins"),
        ({**SOURCE, "kafka.enable.auto.commit": "true"}, "the checkpoint has the offsets"),
        ({**SOURCE, "kafka.key.deserializer": "x"}, "keys are bytes"),
        ({**SOURCE, "kafka.value.deserializer": "x"}, "values are bytes"),
        ({**SOURCE, "kafka.interceptor.classes": "x"}, "Java classes cannot be called"),
        ({**SOURCE, "kafka.max.poll.records": "many"}, "a whole number"),
        ({**SERVERS, "assign": "[1]"}, "assign: expected JSON"),
        ({**SERVERS, "assign": '{"a":[0.5]}'}, "assign: expected JSON"),
        ({**SERVERS, "assign": '{"a":[true]}'}, "assign: expected JSON"),
        ({**SERVERS, "assign": "[" * 100_000}, "assign: expected JSON"),
        ({**SERVERS, "assign": "{}"}, "assign names no partition"),
        ({**SERVERS, "subscribe": " , "}, "names no topic"),
        ({**SOURCE, "maxTriggerDelay": "soon"}, "expected a time like 15m"),
        ({**SOURCE, "maxTriggerDelay": "9" * 5_000 + "m"}, "expected a time like 15m"),
    ],
)
def test_s1_a_wrong_source_option_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        source_options(given, streaming=True)


@pytest.mark.parametrize("option", ["startingOffsets", "assign"])
def test_s1_of_a_long_wrong_value_the_error_shows_its_beginning(option: str) -> None:
    given = {**SERVERS, option: "[" * 100_000} | ({} if option == "assign" else {"subscribe": "a"})
    with pytest.raises(ConfigError, match=f"{option}: expected JSON") as wrong:
        source_options(given, streaming=True)
    assert "[" * 200 in str(wrong.value)
    assert len(str(wrong.value)) < 400


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"a":{"0":3,"1":-1}}'),
        ("endingOffsets", "earliest"),
    ],
)
def test_s1_a_batch_read_of_nothing_is_refused(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match="nothing to read"):
        source_options({**SOURCE, option: value}, streaming=False)


def test_s1_an_end_behind_the_last_time_there_is_is_refused() -> None:
    beyond = {**SOURCE, "endingOffsetsByTimestamp": '{"a":{"0":9223372036854775808}}'}
    with pytest.raises(ConfigError, match="endingOffsetsByTimestamp: 9223372036854775808 for a-0 is above"):
        source_options(beyond, streaming=False)


def test_s2_a_group_of_the_sink_has_a_name() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.group\.id is empty"):
        sink_options({**SINK, "kafka.group.id": ""})


def test_s1_an_end_that_says_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="endingOffsets: expected JSON"):
        source_options({**SOURCE, "endingOffsets": ""}, streaming=False)


def test_s1_every_key_of_a_java_consumer_is_known() -> None:
    """Those that a query has no use for, too: a script for Spark's own connector may set them."""
    more = {
        "fetch.min.bytes": "1000",
        "max.poll.records": "100",
        "session.timeout.ms": "30000",
        "heartbeat.interval.ms": "1000",
        "max.poll.interval.ms": "100000",
        "receive.buffer.bytes": "65536",
        "send.buffer.bytes": "131072",
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
        "allow.auto.create.topics": "false",
        "check.crcs": "true",
        "client.dns.lookup": "use_all_dns_ips",
        "client.rack": "r1",
        "metric.reporters": "com.example.Reporter",
        "ssl.provider": "BC",
        "enable.auto.commit": "false",
    }
    plain = source_options(SOURCE, streaming=True)
    assert (
        source_options({**SOURCE, **{f"kafka.{k}": v for k, v in more.items()}}, streaming=True).client == plain.client
    )
    assert set(CONSUMER_CONFIG.keys) <= set(SOURCE_CLIENT.keys)


def test_s2_what_the_sink_sets_may_be_said() -> None:
    said = {"enable.idempotence": "true", "acks": "all", "max.in.flight.requests.per.connection": "3"}
    more = {
        "receive.buffer.bytes": "1",
        "partitioner.class": "org.apache.kafka.clients.producer.internals.DefaultPartitioner",
    }
    sink_options({**SINK, **{f"kafka.{key}": value for key, value in {**said, **more}.items()}})


@pytest.mark.parametrize(
    "said",
    [
        {"acks": "1"},
        {"enable.idempotence": "false"},
        {"retries": "0"},
        {"max.in.flight.requests.per.connection": "9", "enable.idempotence": "false"},
    ],
)
def test_s1_an_at_least_once_sink_takes_what_spark_s_connector_takes(said: dict[str, str]) -> None:
    given = {**SERVERS, "semantics": "at-least-once", **{f"kafka.{key}": value for key, value in said.items()}}
    client = producer_config(sink_options(given).client)
    assert not client.enable_idempotence
    plain = producer_config(sink_options({**SERVERS, "semantics": "at-least-once"}).client)
    assert plain.enable_idempotence


def test_s5_a_view_may_have_the_options_of_both_sides() -> None:
    both = {**SOURCE, **SINK, "startingOffsets": "earliest", "kafka.linger.ms": "5", "kafka.fetch.max.bytes": "1000"}
    assert source_options(both, streaming=False).topics == source_options(SOURCE, streaming=False).topics
    assert sink_options(both).sink_id == sink_options(SINK).sink_id
    with pytest.raises(ConfigError, match="Unknown sink option startingOffsets"):
        sink_options({**SINK, "startingOffsets": "earliest"})
    with pytest.raises(ConfigError, match="did you mean startingOffsets"):
        source_options({**both, "startingOffset": "earliest"}, streaming=False)


def test_s1_one_set_of_kafka_keys_serves_both_sides() -> None:
    """A Java client only logs the keys that it does not know, so scripts for Spark's own connector have such a set."""
    reads = {f"kafka.{name}": "x" for name in set(CONSUMER_CONFIG.keys) - set(PRODUCER_CONFIG.keys) - {"group.id"}}
    writes = {f"kafka.{name}": "x" for name in set(PRODUCER_CONFIG.keys) - set(SOURCE_CLIENT.keys)}
    assert {"kafka.isolation.level", "kafka.auto.offset.reset", "kafka.max.poll.records"} <= set(reads)
    assert {"kafka.acks", "kafka.linger.ms", "kafka.retries", "kafka.transactional.id"} <= set(writes)
    assert sink_options({**SINK, **reads}) == sink_options(SINK)
    for streaming in (True, False):
        plain = source_options(SOURCE, streaming=streaming)
        assert source_options({**SOURCE, **writes}, streaming=streaming) == plain
    with pytest.raises(ConfigError, match=r"Unknown sink option kafka.isolation.levle; did you mean kafka.isolation"):
        sink_options({**SINK, "kafka.isolation.levle": "read_committed"})
    with pytest.raises(ConfigError, match=r"Unknown source option kafka.linger.m; did you mean kafka.linger.ms\?"):
        source_options({**SOURCE, "kafka.linger.m": "1"}, streaming=True)


def test_s5_a_table_whose_options_spark_does_not_give_us_is_told() -> None:
    for parse in (sink_options, lambda given: source_options(given, streaming=False)):
        with pytest.raises(ConfigError, match="Spark gives a Python data source none of a table"):
            parse({})


def test_s2_the_sink_is_exactly_once_unless_told_otherwise() -> None:
    assert sink_options(SINK).semantics is Semantics.EXACTLY_ONCE
    assert sink_options({**SERVERS, "semantics": "at-least-once"}).semantics is Semantics.AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("given", "sink_id"),
    [
        ({"sink.id": "words-1"}, "words-1"),
        ({"queryname": "my query"}, "ottla-my_query-dd37703a71ff8068"),
        ({"queryname": "my_query"}, "ottla-my_query"),
        ({"checkpointlocation": "file:///data/check points/q"}, "ottla-data_check_points_q-e5d3b75612c020b1"),
    ],
)
def test_s2_the_sink_has_the_same_id_after_a_restart(given: dict[str, str], sink_id: str) -> None:
    assert sink_options({**SERVERS, **given}).sink_id == sink_id


def test_s2_two_queries_whose_names_have_no_letter_that_an_id_may_have_do_not_share_a_sink() -> None:
    names = ("заказы", "клиенты", "订单", "/", "заказы-1", "клиенты-1", "Orders", "orders")
    ids = [sink_options({**SERVERS, "topic": "t", "queryname": name}).sink_id for name in names]
    assert len(set(ids)) == len(names)
    assert ids == [sink_options({**SERVERS, "topic": "t", "queryname": name}).sink_id for name in names]
    places = [sink_options({**SERVERS, "topic": "t", "checkpointlocation": f"/data/{name}"}) for name in names[:2]]
    assert places[0].sink_id != places[1].sink_id


@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize(
    "given",
    [{"topic": "__ottla_ledger"}, {"topic": "__ottla_other"}, {"topic": "notes", "ledger.topic": "notes"}],
)
def test_s2_no_rows_go_to_a_ledger(given: dict[str, str], semantics: str) -> None:
    with pytest.raises(ConfigError, match=f"option topic: {given['topic']} is a ledger"):
        sink_options({**SINK, "semantics": semantics, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (SERVERS, "set the option sink.id"),
        ({**SINK, "sink.id": "a b"}, "letters, digits"),
        ({**SINK, "queryId": "job"}, "option queryId says nothing without batchId: give both"),
        ({**SINK, "queryId": "", "batchId": "0"}, "queryId '': it must not be empty"),
        ({**SINK, "queryId": "__ottla/unnamed", "batchId": "0"}, "names that begin with __ottla/ are Ottla's own"),
        ({**SINK, "queryId": "q" * 501, "batchId": "0"}, "queryId has 501 characters, and at most 500 are allowed"),
        ({**SINK, "batchId": "20261121"}, "option batchId says nothing without queryId: give both"),
        ({**SINK, "kafka.transactional.id": "x"}, "is set by the sink itself"),
        (
            {**SINK, "kafka.acks": "1"},
            "kafka.acks=1 contradicts semantics=exactly-once: rows that one broker alone has",
        ),
        (
            {**SINK, "kafka.retries": "0"},
            "kafka.retries=0 contradicts semantics=exactly-once: rows whose request was lost",
        ),
        ({**SINK, "kafka.acks": "0", "semantics": "at-least-once"}, "nobody would know whether a row was written"),
        ({**SINK, "asyncProgressTrackingEnabled": "true"}, "note a micro-batch as done before it is committed"),
        (
            {**SINK, "kafka.enable.idempotence": "false"},
            "kafka.enable.idempotence=false contradicts semantics=exactly-once: a request",
        ),
        ({**SINK, "kafka.max.in.flight.requests.per.connection": "6"}, "keep the order of five requests"),
        (
            {**SINK, "kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
            "Java classes",
        ),
        ({**SINK, "semantic": "exactly-once"}, "did you mean semantics?"),
        ({**SINK, "semantics": "once"}, "exactly-once, at-least-once"),
        ({**SINK, "kafka.linger.m": "1"}, "did you mean kafka.linger.ms?"),
    ],
)
def test_s1_a_wrong_sink_option_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        sink_options(given)


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("10 s", 10_000), ("500ms", 500), ("7", 7), ("1h", 3_600_000)]
)
def test_times_have_units(text: str, ms: int) -> None:
    assert duration_ms("maxTriggerDelay", text) == ms


def test_x1_secrets_reach_the_tasks_and_are_shown_nowhere() -> None:
    sasl = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "alice", "kafka.sasl.password": "hunter2"}
    given = {"kafka.bootstrap.servers": "a:1", "kafka.security.protocol": "SASL_SSL", **sasl}
    source = source_options({**given, "subscribe": "t"}, streaming=False)
    sink = sink_options({**given, "topic": "t", "sink.id": "s"})
    assert "hunter2" not in repr(source)
    assert "hunter2" not in repr(sink)
    assert pickle.loads(pickle.dumps(source)).kafka["sasl.password"] == "hunter2"
    assert pickle.loads(pickle.dumps(sink)).client["sasl.password"] == "hunter2"

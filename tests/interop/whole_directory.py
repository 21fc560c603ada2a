"""Everything that a broker's data directory can hold, written through foreign clients, and read back to be compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla import Admin, ClientQuotaAlteration, ClientQuotaEntity
from ottla.broker.config_keys import STANDARD_AUTHORIZER

#: Settings of either broker that these tests need.
SETTINGS: Final = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
_COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_WAIT_S: Final = 60.0
_GROUPS: Final = ("by-hand", "classic", "consumer")

#: Errors of a coordinator that is not there yet.
_SOON: Final = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"})

T = TypeVar("T")
Row = tuple[int, str | None, str, tuple[tuple[str, bytes | None], ...]]


def read(bootstrap: str, topic: str) -> list[Row]:
    """What a read_committed reader is shown of all partitions: partition, key, value, headers."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    numbers = consumer.list_topics(topic, _WAIT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    found: list[Row] = []
    ended: set[int] = set()
    while len(ended) < len(numbers):
        message = consumer.poll(_WAIT_S)
        assert message is not None, f"the broker went silent on {topic}"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended.add(message.partition())
        else:
            found.append(_row(message))
    consumer.close()
    return sorted(found, key=lambda row: row[0])


def _row(message: Message) -> Row:
    key, value = message.key(), message.value()
    headers = tuple(message.headers() or ())
    return message.partition(), None if key is None else key.decode(), (value or b"").decode(), headers


class World:
    """What was written, and what must be there."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        #: Producers whose transactions stay open. They are kept: one that is collected says goodbye.
        self._open: list[Producer] = []

    def begin(self, bootstrap: str) -> None:
        """Make everything."""
        admin = AdminClient({"bootstrap.servers": bootstrap})
        configs = {"retention.ms": "123456789", "max.message.bytes": "500000"}
        topics = [NewTopic(name, 2, 1, config=configs) for name in _COMPRESSIONS]
        topics += [NewTopic("ended", 1, 1), NewTopic("gone", 1, 1), NewTopic("grown", 1, 1)]
        topics += [NewTopic("latest", 1, 1, config={"cleanup.policy": "compact", "segment.ms": "1000"})]
        for made in admin.create_topics(topics).values():
            made.result(_WAIT_S)
        admin.delete_topics(["gone"])["gone"].result(_WAIT_S)
        admin.create_partitions([NewPartitions("grown", 3)])["grown"].result(_WAIT_S)
        self._change_access(admin, bootstrap, "alice")
        self.write(bootstrap, "first")
        self._latest(bootstrap, "old")
        self._latest(bootstrap, "new")
        self._commit(bootstrap)

    def write(self, bootstrap: str, tag: str) -> None:
        """Records in every compression, and transactions of every end."""
        for codec in _COMPRESSIONS:
            producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
            for at in range(60):
                headers = (("at", f"{at}".encode()), ("none", None))
                value = f"{tag} {at} " + "x" * 50
                producer.produce(codec, value, f"k{at}", partition=at % 2, headers=list(headers))
                self.rows.setdefault(codec, []).append((at % 2, f"k{at}", value, headers))
            assert producer.flush(_WAIT_S) == 0
        for ending in ("committed", "aborted", "left open"):
            self._transaction(bootstrap, f"{ending} {tag}", ending)

    def _transaction(self, bootstrap: str, name: str, ending: str) -> None:
        # Behind an open transaction nothing is shown: it has a topic of its own.
        topic = "open" if ending == "left open" else "ended"
        if topic == "open":
            _made(bootstrap, topic)
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name.replace(" ", "-")})
        producer.init_transactions(_WAIT_S)
        producer.begin_transaction()
        producer.produce(topic, name, partition=0)
        assert producer.flush(_WAIT_S) == 0
        if ending == "committed":
            producer.commit_transaction(_WAIT_S)
            self.rows.setdefault(topic, []).append((0, None, name, ()))
        elif ending == "aborted":
            producer.abort_transaction(_WAIT_S)
        else:
            self._open.append(producer)
            self.rows.setdefault(topic, [])

    def end_open(self, bootstrap: str, tag: str) -> None:
        """An heir of the producer that was left with an open transaction aborts it, and goes on."""
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"left-open-{tag}"})
        producer.init_transactions(_WAIT_S)
        producer.begin_transaction()
        producer.produce("open", f"heir of {tag}", partition=0)
        producer.commit_transaction(_WAIT_S)
        self.rows["open"].append((0, None, f"heir of {tag}", ()))

    def _latest(self, bootstrap: str, tag: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        for at in range(30):
            producer.produce("latest", f"{tag} {at}", f"k{at % 5}", partition=0)
            assert producer.flush(_WAIT_S) == 0

    def _commit(self, bootstrap: str) -> None:
        by_hand = Consumer({"bootstrap.servers": bootstrap, "group.id": "by-hand"})
        patiently(lambda: by_hand.commit(offsets=[TopicPartition("gzip", 0, 7, "note")], asynchronous=False))
        by_hand.close()
        for protocol in ("classic", "consumer"):
            settings = {
                "bootstrap.servers": bootstrap,
                "group.id": protocol,
                "group.protocol": protocol,
                "group.instance.id": f"static-{protocol}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
            member = Consumer(settings)
            member.subscribe(["lz4"])
            message = member.poll(_WAIT_S)
            assert message is not None
            assert message.error() is None
            patiently(partial(member.commit, message, asynchronous=False))
            member.close()  # a static member: it is missed by nobody until its session is over

    def change(self, bootstrap: str, tag: str) -> None:
        """Change the metadata in every way, and write some more."""
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(f"of-{tag}", 2, 1)])[f"of-{tag}"].result(_WAIT_S)
        admin.create_topics([NewTopic(f"short-{tag}", 1, 1)])[f"short-{tag}"].result(_WAIT_S)
        admin.delete_topics([f"short-{tag}"])[f"short-{tag}"].result(_WAIT_S)
        self._change_access(admin, bootstrap, tag)
        self.write(bootstrap, tag)

    def _change_access(self, admin: AdminClient, bootstrap: str, user: str) -> None:
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion(user, credential, b"a password")
        admin.alter_user_scram_credentials([wanted])[user].result(_WAIT_S)
        read_it = (ResourceType.TOPIC, "gzip", ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.READ)
        for made in admin.create_acls([AclBinding(*read_it, AclPermissionType.ALLOW)]).values():
            made.result(_WAIT_S)
        with Admin({"bootstrap.servers": bootstrap}) as ours:
            ours.alter_client_quotas(
                [ClientQuotaAlteration(ClientQuotaEntity(user=user), {"producer_byte_rate": 1_000_000.0})]
            )

    def check_records(self, bootstrap: str) -> None:
        """Every record that was acknowledged, each once, in order; none that was aborted."""
        for topic, rows in self.rows.items():
            assert read(bootstrap, topic) == sorted(rows, key=lambda row: row[0]), topic
        newest = {key: value for _, key, value, _ in read(bootstrap, "latest")}
        assert newest == {f"k{at % 5}": f"new {at}" for at in range(30)}


def patiently(call: Callable[[], T]) -> T:
    """What the call gives when the group's coordinator has been loaded; the broker has started just now."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            return call()
        except KafkaException as fault:
            if fault.args[0].name() not in _SOON or time.monotonic() > deadline:
                raise


def _made(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic not in admin.list_topics(timeout=_WAIT_S).topics:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(_WAIT_S)


def said(bootstrap: str) -> dict[str, Any]:
    """All that a broker says of its topics, groups, users, ACLs and quotas."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = sorted(name for name in admin.list_topics(timeout=_WAIT_S).topics if not name.startswith("__"))
    described = admin.describe_topics(TopicCollection(names)) if names else {}
    acls = admin.describe_acls(
        AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
    ).result(_WAIT_S)
    with Admin({"bootstrap.servers": bootstrap}) as ours:
        quotas = sorted(map(repr, ours.describe_client_quotas().items()))
        users = sorted(map(repr, ours.describe_user_scram_credentials().items()))
    return {
        "topics": {name: _topic(made.result(_WAIT_S)) for name, made in described.items()},
        "configs": dict(_configs(admin, names)),
        "acls": sorted(map(str, acls)),
        "users": users,
        "quotas": quotas,
        "offsets": dict(_offsets(bootstrap)),
        "groups": dict(_group_types(admin)),
    }


def _group_types(admin: AdminClient) -> Iterator[tuple[str, str]]:
    """The protocol of each group: of members that come back, and of offsets without one."""
    for each in admin.list_consumer_groups(request_timeout=_WAIT_S).result(_WAIT_S).valid:
        if each.group_id in _GROUPS:
            yield each.group_id, str(each.type)


def _topic(described: Any) -> tuple[str, list[int]]:
    return str(described.topic_id), [each.id for each in described.partitions]


def _configs(admin: AdminClient, names: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The topics' own settings."""
    resources = [ConfigResource(ResourceType.TOPIC, each) for each in names]
    for resource, found in admin.describe_configs(resources).items() if resources else ():
        entries = found.result(_WAIT_S)
        own = {key: entry.value for key, entry in entries.items() if entry.source == _OWN}
        yield resource.name, own


#: ConfigSource.DYNAMIC_TOPIC_CONFIG.
_OWN: Final = 1


def _offsets(bootstrap: str) -> Iterator[tuple[str, list[tuple[str, int, int, str | None]]]]:
    for group in _GROUPS:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        asked = [TopicPartition(topic, number) for topic in ("gzip", "lz4") for number in (0, 1)]
        found = patiently(partial(consumer.committed, asked, _WAIT_S))
        yield group, [(each.topic, each.partition, each.offset, each.metadata) for each in found]
        consumer.close()

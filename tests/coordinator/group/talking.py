"""A talk with a broker about one group, over plain sockets: raw requests, no client's opinions.

Every request and its answer become one line of a transcript. A line shows every field that has not its default, with
ids and names that differ from run to run replaced, so two transcripts are equal when the answers are, field by field.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema import encode

#: A broker's settings for the talks: no wait between two assignments, short sessions.
SETTINGS: Final[Mapping[str, str]] = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "5000",
}
#: The same, and small groups: the talks also ask what a group that is full answers.
TALK_SETTINGS: Final[Mapping[str, str]] = {
    **SETTINGS,
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.max.session.timeout.ms": "1800000",
    "group.max.size": "3",
    "group.consumer.max.size": "3",
}
READY_TIMEOUT_S: Final = 30.0
#: Ids that a broker makes are longer than any that a talk uses in the place of one.
_GENERATED_LENGTH: Final = 22
#: Fields in which a broker tells an id that it has made.
_MADE: Final = ("member_id", "leader")


class _Asked(NamedTuple):
    """A request on its way."""

    correlation_id: int
    api: ApiKey
    version: int
    said: str
    by: str


class GroupTalk:
    """A talk about a group that nobody used before, with the topics `t` (4 partitions) and `u` (2)."""

    def __init__(self, name: str, port: int) -> None:
        self._suffix = f"-{name}-{uuid.uuid4().hex[:12]}"
        self.group_id = "g" + self._suffix
        self.transcript: list[str] = []
        self._names: dict[str, str] = {}
        self._ids: dict[str, bytes] = {}
        self._generated: dict[str, str] = {}
        self._correlation_ids = itertools.count()
        self._connections: dict[str, socket.socket] = {}
        self._port = port
        self._find_coordinator(self.group_id)
        self._make("t", 4)
        self._make("u", 2)
        self._warm_up()

    def connect(self, port: int) -> None:
        """Talk to another broker from now on, about the same group."""
        self.close()
        self._port = port
        self._find_coordinator(self.group_id)

    def close(self) -> None:
        """End the connections."""
        for each in self._connections.values():
            each.close()
        self._connections.clear()

    # -- one request, one line

    def ask(self, api: ApiKey, version: int, message: Any, usual: Any = None) -> Any:
        """A request and its answer, noted."""
        return self.hear(self.start(api, version, message, usual))

    def start(self, api: ApiKey, version: int, message: Any, usual: Any = None, *, by: str = "") -> _Asked:
        """A request whose answer comes later (`hear`), over the connection `by`. Its line says what is not `usual`."""
        correlation_id = next(self._correlation_ids)
        self._connection(by).sendall(encode_request(api, version, correlation_id, "talk", message))
        said = f"{by}{':' if by else ''}{API[api].name} v{version} {self._shown_message(message, usual)}"
        return _Asked(correlation_id, api, version, said, by)

    def hear(self, asked: _Asked) -> Any:
        """The answer to a request, noted when it is there."""
        answer = self._answer(asked)
        self._note(asked.said, self.shown(self._narrowed(answer)))
        return answer

    def broken(self, api: ApiKey, version: int, message: Any) -> None:
        """A request in ways that no client sends it: cut off, with bytes too many, without a body."""
        whole = encode_request(api, version, 0, "talk", message)[4:]
        header = len(whole) - len(encode(message, version))
        self.anything(api, version, "without its last byte", whole[:-1])
        self.anything(api, version, "with a byte too many", whole + b"\0")
        self.anything(api, version, "without a body", whole[:header])
        self.anything(api, version, "cut in its header", whole[: header - 3])

    def unknown_version(self, api: ApiKey, version: int) -> None:
        """A header with a version that there is not."""
        head = api.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
        self.anything(api, version, "that there is not", head + bytes(4) + b"\0\4talk" + bytes(64))

    def spoilt(self, api: ApiKey, version: int, message: Any) -> None:
        """A request whose group id is null, or longer than the request, and one with tags that nobody knows."""
        whole = encode_request(api, version, 0, "talk", message)[4:]
        body = encode(message, version)
        header, name = whole[: -len(body)], self.group_id.encode()
        flexible = version >= API[api].flexible_from
        right = bytes([len(name) + 1]) if flexible else len(name).to_bytes(2, "big")
        wrongs = {
            "null": b"\0" if flexible else b"\xff\xff",
            "of negative length": b"\xff\xff\xff\xff\x0f" if flexible else b"\x80\0",
            "longer than the request": b"\xff\x7f" if flexible else b"\x7f\xff",
        }
        for how, wrong in wrongs.items():
            rest = b"" if how == "null" else name
            self.anything(api, version, f"group id {how}", header + body.replace(right + name, wrong + rest, 1))
        if flexible:
            tag = b"\1\x63\2ab"
            self.anything(api, version, "with a tag in its header", header[:-1] + tag + body)
            self.anything(api, version, "with a tag in its body", header + body[:-1] + tag)
            self.anything(api, version, "with a tag longer than it", header + body[:-1] + b"\1\x63\x7fab")
        self.anything(api, version, "without client id", whole[:8] + b"\xff\xff" + whole[14:])

    def anything(self, api: ApiKey, version: int, what: str, request: bytes) -> None:
        """Any bytes in a frame of their own, over a connection of their own: they are answered, or closed on."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=READY_TIMEOUT_S) as connection:
            connection.sendall(len(request).to_bytes(4, "big") + request)
            size = _exactly(connection, 4)
            if not size:
                self._note(f"{API[api].name} v{version} {what}", "closed")
                return
            _, answer = decode_response(api, version, _exactly(connection, int.from_bytes(size, "big")))
        self._note(f"{API[api].name} v{version} {what}", self.shown(self._narrowed(answer)))

    def until_state(self, state: str) -> None:
        """Ask until the group is in this state: what another connection has sent has arrived then. Not noted."""
        until = time.monotonic() + READY_TIMEOUT_S
        request = DescribeGroupsRequest((self.group_id,))
        while self.send(ApiKey.DESCRIBE_GROUPS, 5, request).groups[0].group_state != state:
            assert time.monotonic() < until, f"the group does not become {state}"
            self._wait()

    def _narrowed(self, answer: Any) -> Any:
        """Without the groups of other talks."""
        if hasattr(answer, "groups") and answer.groups and hasattr(answer.groups[0], "group_type"):
            return answer._replace(groups=tuple(each for each in answer.groups if self._suffix in each.group_id))
        return answer

    def shown(self, value: Any, field: str = "") -> str:
        """A message in words: its fields that have not their default, what lists hold in one order."""
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._shown_message(value)
        if isinstance(value, (tuple, list)):
            items = [self.shown(each) for each in value]
            ordered = field in ("protocols", "states_filter", "types_filter")
            return f"[{', '.join(items if ordered else sorted(items))}]"
        if isinstance(value, bytes):
            by_id = {topic_id: name for name, topic_id in self._ids.items()}
            return by_id.get(value, str(self._plain(repr(value))))
        if field in _MADE and isinstance(value, str):
            value = self._generate(value)
        return repr(self._plain(value))

    def _shown_message(self, message: Any, usual: Any = None) -> str:
        if getattr(message, "error_code", 0) == ErrorCode.INVALID_REGULAR_EXPRESSION:
            # Each library has its own words for what is wrong.
            message = message._replace(error_message=message.error_message.partition(" is not")[0])
        defaults = message._field_defaults if usual is None else usual._asdict()
        parts = []
        for field, value in message._asdict().items():
            if field == "error_code":
                parts.append(ErrorCode(value).name)
            elif value != defaults.get(field):
                parts.append(f"{field}={self.shown(value, field)}")
        return f"({' '.join(parts)})"

    # -- topics

    def make_topic(self, topic: str, partitions: int) -> None:
        """A new topic, or more partitions of one."""
        if topic in self._ids:
            asked = CreatePartitionsTopic(self.name(topic), partitions, None)
            (done,) = self.send(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest((asked,), 10_000)).results
            assert not done.error_code, done
            self._await_topic(topic, partitions)
        else:
            self._make(topic, partitions)
        self._note(f"topic {topic} has {partitions} partitions", "")

    def delete_topic(self, topic: str) -> None:
        """The topic is gone."""
        request = DeleteTopicsRequest((DeleteTopicState(self.name(topic)),), (), 10_000)
        (done,) = self.send(ApiKey.DELETE_TOPICS, 6, request).responses
        assert not done.error_code, done
        self._note(f"topic {topic} is deleted", "")

    def _make(self, topic: str, partitions: int) -> None:
        new = CreatableTopic(self.name(topic), partitions, 1)
        (done,) = self.send(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest((new,), 10_000)).topics
        assert not done.error_code, done
        self._ids[topic] = done.topic_id
        self._names[self.name(topic)] = topic
        self._await_topic(topic, partitions)

    def _await_topic(self, topic: str, partitions: int) -> None:
        until = time.monotonic() + READY_TIMEOUT_S
        request = MetadataRequest((MetadataRequestTopic(bytes(16), self.name(topic)),), False)
        while len(self.send(ApiKey.METADATA, 12, request).topics[0].partitions) < partitions:
            assert time.monotonic() < until, "the topic does not appear"
            self._wait()

    # -- wire

    def send(self, api: ApiKey, version: int, message: tuple[Any, ...]) -> Any:
        """One request, and its answer; not noted."""
        correlation_id = next(self._correlation_ids)
        self._connection("").sendall(encode_request(api, version, correlation_id, "talk", message))
        return self._answer(_Asked(correlation_id, api, version, "", ""))

    def _answer(self, asked: _Asked) -> Any:
        connection = self._connection(asked.by)
        size = _exactly(connection, 4)
        assert size, f"the broker closed the connection: {asked.said}"
        answered, answer = decode_response(asked.api, asked.version, _exactly(connection, int.from_bytes(size, "big")))
        assert answered == asked.correlation_id
        return answer

    def _connection(self, by: str) -> socket.socket:
        if by not in self._connections:
            self._connections[by] = socket.create_connection(("127.0.0.1", self._port), timeout=READY_TIMEOUT_S)
        return self._connections[by]

    def _wait(self) -> None:
        """Nothing tells when the other process is ready: let it hold back an answer, to a fetch of nothing."""
        topics = (FetchTopic(topic=self.name("t"), partitions=(FetchPartition(partition_max_bytes=1),)),)
        self.send(ApiKey.FETCH, 6, FetchRequest(max_wait_ms=20, min_bytes=1, max_bytes=1, topics=topics))

    def _find_coordinator(self, group_id: str) -> None:
        """Wait until the coordinator of this group answers, whether there is such a group or not."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=(group_id,))
        describe = ConsumerGroupDescribeRequest((group_id,))
        until = time.monotonic() + READY_TIMEOUT_S
        while self.send(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code != ErrorCode.NONE or self.send(
            ApiKey.CONSUMER_GROUP_DESCRIBE, 0, describe
        ).groups[0].error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            assert time.monotonic() < until, "no coordinator"
            self._wait()

    def _warm_up(self) -> None:
        """Nothing tells when this group's coordinator knows of new topics: join until it does, then forget the group.

        It must be this very group: another one may belong to a shard that hears of the topics earlier.
        """
        until = time.monotonic() + READY_TIMEOUT_S
        while self._join_warm(0) < 6:
            assert time.monotonic() < until, "the coordinator does not hear of the topics"
            self._wait()
        self._join_warm(-1)
        self.forget(self.group_id)

    def forget(self, group_id: str) -> None:
        """Delete a group, if there is one. Not noted."""
        self.send(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest((group_id,)))

    def _join_warm(self, epoch: int) -> int:
        """A heartbeat: how many partitions of `t` and `u` the coordinator has for a member."""
        names = (self.name("t"), self.name("u"))
        request = ConsumerGroupHeartbeatRequest(self.group_id, "warm", epoch, None, None, 60_000, names)
        assignment = self.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request).assignment
        return sum(len(each.partitions) for each in assignment.topic_partitions) if assignment else 0

    # -- words

    def _generate(self, member_id: str) -> str:
        """A short name for an id that the broker has made; others are told as they are."""
        if len(member_id) < _GENERATED_LENGTH:
            return member_id
        if member_id not in self._names:
            self._names[member_id] = short = f"M{len(self._generated)}"
            self._generated[short] = member_id
        return self._names[member_id]

    def full(self, member: str) -> str:
        """The id behind a short name."""
        return self._generated.get(member, member)

    def name(self, topic: str) -> str:
        """The whole name of a topic."""
        return topic + self._suffix

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic of this talk."""
        return self._ids[topic]

    def _plain(self, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        for full, short in self._names.items():
            text = text.replace(full, short)
        return text.replace(self.group_id, "G").replace(self._suffix, "~")

    def _note(self, asked: str, answered: str) -> None:
        self.transcript.append(f"{asked} -> {answered}" if answered else asked)


def named(talks: Iterable[Any]) -> dict[str, Any]:
    """Talks by the names of their functions."""
    return {each.__name__: each for each in talks}


def held(talk: GroupTalk, say: Callable[[Any], None]) -> list[str]:
    """The transcript of a talk."""
    with contextlib.closing(talk):
        say(talk)
    return talk.transcript


def transcripts(path: Path) -> dict[str, list[str]]:
    """The transcripts of a file, by name."""
    found: dict[str, list[str]] = {}
    transcript: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            found[line.strip("[]")] = transcript = []
        elif line and not line.startswith("#"):
            transcript.append(line)
    return found


def _exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes; none when the broker has closed the connection."""
    data = b""
    while len(data) < size:
        try:
            part = connection.recv(size - len(data))
        except ConnectionResetError:
            part = b""
        if not part:
            return b""
        data += part
    return data

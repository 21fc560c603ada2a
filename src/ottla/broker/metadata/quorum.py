"""`quorum-state`: the vote of Apache Kafka's quorum, and by whose hand the metadata log was written last.

Apache Kafka writes the file with every election, which is with every start: who leads, in which epoch. A directory of
ours has none until Apache Kafka has been there. Then we lead too, as the only voter: in an epoch of our own, which
begins with the control batch that begins every epoch of a quorum (KIP-595). So offsets and epochs go on, and Apache
Kafka's next election is in the epoch behind ours.

The file that we leave has a field of our own, which Apache Kafka passes over and does not write again. Without it, it
was Apache Kafka that led last: what we have noted of the directory's files (`ottla-manifest`) is of another time.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.base.types import topic_id_text
from ottla.broker.disk import Disk
from ottla.broker.metadata.names import BOOTSTRAP_CHECKPOINT, METADATA_FOLDER, QUORUM_STATE
from ottla.broker.metadata.snapshots import newest_snapshot
from ottla.log.epochs import LeaderEpochs
from ottla.log.names import LOG
from ottla.log.storage import Storage
from ottla.wire.batch import iter_headers
from ottla.wire.codec import NULL_UUID

_OURS: Final = "ledByOttla"
#: Epochs have 31 bits, and there is one behind each that is led in.
_MAX_EPOCH: Final = 2**31 - 1
#: Kafka's fields, of both versions of the file, and ours: a changed letter in it would say that Apache Kafka led last.
_FIELDS: Final = frozenset(
    {"clusterId", "leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "appliedOffset", "currentVoters"}
    | {"data_version", _OURS}
)


class Vote(NamedTuple):
    """The file's content (Kafka's `QuorumStateData.json`, versions 0 and 1)."""

    leader_id: int
    leader_epoch: int
    #: None where the file does not name them: with `kraft.version` 1 they are in the log.
    voters: tuple[int, ...] | None
    is_ours: bool

    def encode(self) -> bytes:
        """The file's bytes."""
        state: dict[str, object] = {"leaderId": self.leader_id, "leaderEpoch": self.leader_epoch, "votedId": -1}
        if self.voters is None:
            state |= {"votedDirectoryId": topic_id_text(NULL_UUID), "data_version": 1}
        else:
            voters = [{"voterId": each} for each in self.voters]
            state = {"clusterId": "", **state, "appliedOffset": 0, "currentVoters": voters, "data_version": 0}
        if self.is_ours:
            state[_OURS] = True
        return json.dumps(state, separators=(",", ":")).encode()


def decode_vote(content: bytes) -> Vote:
    """CorruptDataError when it is none."""
    try:
        state = json.loads(content)
        if not isinstance(state, Mapping):
            raise CorruptDataError("it is no JSON object")
        if state["data_version"] not in (0, 1):
            raise CorruptDataError(f"data_version {state['data_version']} is not known")
        if strange := sorted(state.keys() - _FIELDS):
            raise CorruptDataError(f"nobody writes a field {strange[0]!r}")
        if not 0 <= int(state["leaderEpoch"]) < _MAX_EPOCH:
            raise CorruptDataError(f"{state['leaderEpoch']} is no epoch")
        voters = state.get("currentVoters")
        return Vote(
            int(state["leaderId"]),
            int(state["leaderEpoch"]),
            None if voters is None else tuple(int(each["voterId"]) for each in voters),
            state.get(_OURS) is True,
        )
    except CorruptDataError:
        raise
    except (ValueError, TypeError, KeyError) as fault:
        raise CorruptDataError(f"{type(fault).__name__}: {fault}") from None


class Quorum:
    """The file in the metadata log's folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        #: What the file says; None where there is none, or where it is damaged.
        self.vote: Vote | None = None
        #: What is wrong with the file.
        self.fault: str | None = None
        content = storage.read(QUORUM_STATE)
        try:
            self.vote = None if content is None else decode_vote(content)
        except CorruptDataError as fault:
            self.fault = str(fault)

    def lead(self, node_id: int, epoch: int, *, kraft_version: int) -> None:
        """Vote for ourselves, and lead. Until `sign` it is not said that the directory is ours. StorageError."""
        self.vote = Vote(node_id, epoch, None if kraft_version else (node_id,), is_ours=False)
        self._storage.write(QUORUM_STATE, self.vote.encode())

    def sign(self) -> None:
        """All that Apache Kafka has left is ours now. No-op in a directory where it never was. StorageError."""
        if self.vote is not None and not self.vote.is_ours:
            self.vote = self.vote._replace(is_ours=True)
            self._storage.write(QUORUM_STATE, self.vote.encode())


def mark_of_apache_kafka(disk: Disk) -> str | None:
    """A file which says that Apache Kafka was the last to use the directory, or to format it; else None."""
    entries = disk.entries(METADATA_FOLDER) or []
    if entries:
        storage = disk.open_folder(METADATA_FOLDER)
        quorum = Quorum(storage)
        if quorum.vote is not None:
            return None if quorum.vote.is_ours else f"{METADATA_FOLDER}/{QUORUM_STATE}"
        snapshot = newest_snapshot(entry.name for entry in entries)
        if quorum.fault is not None or snapshot is not None or _has_elected(storage):
            return f"{METADATA_FOLDER}/{QUORUM_STATE if snapshot is None else snapshot.file_name}"
    if any(entry.name.endswith(LOG) and entry.size_bytes for entry in entries):
        return None
    return BOOTSTRAP_CHECKPOINT if BOOTSTRAP_CHECKPOINT in disk.own_files().names() else None


def _has_elected(storage: Storage) -> bool:
    """Whether a quorum has written the log: each of its epochs begins with a control batch, and we write none before.

    The CRC covers what says that it is one; of an epoch there is no checksum, in the batches and in the checkpoint. So
    another epoch than ours is only the reason to look.
    """
    if LeaderEpochs(storage).latest == 0:
        return False
    with suppress(CorruptDataError):  # `damage` tells of it
        for name in sorted(each for each in storage.names() if each.endswith(LOG)):
            if any(header.is_control for _, header in iter_headers(storage.read(name) or b"")):
                return True
    return False

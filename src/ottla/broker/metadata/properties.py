"""`meta.properties`: which cluster and which node a data directory belongs to."""

import random
import re
import uuid
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.types import topic_id_bytes, topic_id_text
from ottla.broker.disk import Disk
from ottla.broker.metadata.names import META_PROPERTIES as _FILE
from ottla.broker.metadata.names import METADATA_FOLDER
from ottla.broker.told import Kind, Tell, Told, log_told
from ottla.log.names import LOG

#: Apache Kafka's file is of Java's `Properties`, which has a backslash before some characters.
_ESCAPED: Final = re.compile(r"\\(.)")
_VERSION: Final = "1"


class MetaProperties(NamedTuple):
    """Kafka's version 1 of the file."""

    cluster_id: str
    node_id: int
    directory_id: bytes

    def encode(self) -> bytes:
        """The file's content."""
        lines = (
            "version=1",
            f"cluster.id={self.cluster_id}",
            f"node.id={self.node_id}",
            f"directory.id={topic_id_text(self.directory_id)}",
        )
        return ("\n".join(lines) + "\n").encode()


def load_or_create(
    disk: Disk,
    rng: random.Random,
    *,
    node_id: int,
    cluster_id: str | None,
    sealed: str | None = None,
    tell: Tell = log_told,
) -> MetaProperties:
    """The directory's properties; a new directory gets the ids given, or fresh ones.

    `sealed` is what the file held when the broker saw it last. If it is gone or damaged, it is made again from that.
    Raises StorageError when the file names another cluster or node than it did then, or when the directory belongs to
    another node or cluster.
    """
    files = disk.own_files()
    content = files.read(_FILE)
    if sealed is not None and content != sealed.encode():
        content = _mend(disk, rng, content, sealed, tell)
    if content is None:
        _may_be_made_again(disk, cluster_id, tell)
        made = MetaProperties(cluster_id or topic_id_text(new_uuid(rng)), node_id, new_uuid(rng))
        files.write(_FILE, made.encode())
        return made
    found = _decode(f"{disk}/{_FILE}", content, rng)
    if found.node_id != node_id:
        raise StorageError(f"{disk} belongs to node.id={found.node_id}, this broker has node.id={node_id}")
    if cluster_id not in (None, found.cluster_id):
        raise StorageError(f"{disk} belongs to cluster {found.cluster_id}, not {cluster_id}")
    if b"directory.id" not in content:  # Apache Kafka before 3.7 gave none
        files.write(_FILE, found.encode())
    return found


def _mend(disk: Disk, rng: random.Random, content: bytes | None, sealed: str, tell: Tell) -> bytes:
    """Make the file again as it was; StorageError when it is whole and says something else."""
    path, was = f"{disk}/{_FILE}", _decode("", sealed.encode(), rng)
    found = None
    with suppress(StorageError):
        found = None if content is None else _decode(path, content, rng)
    if found is not None and found[:2] != was[:2]:
        raise StorageError(
            f"{path} says cluster.id={found.cluster_id} and node.id={found.node_id}, but this is the directory of "
            f"cluster {was.cluster_id} and node {was.node_id}: remove the file, and it is made again as it was; or, if "
            "it was changed on purpose, remove ottla-manifest"
        )
    what = "is gone" if content is None else "is not as the broker has left it"
    tell(Told(Kind.MADE_AGAIN, _FILE, f"{path} {what}: made again with cluster.id={was.cluster_id}"))
    disk.own_files().write(_FILE, sealed.encode())
    return sealed.encode()


def _may_be_made_again(disk: Disk, cluster_id: str | None, tell: Tell) -> None:
    """StorageError when the directory holds a cluster's metadata, and nobody says the cluster's id.

    With a new id clients and tools would take it for another cluster.
    """
    if not any(entry.name.endswith(LOG) and entry.size_bytes for entry in disk.entries(METADATA_FOLDER) or ()):
        return
    if cluster_id is None:
        raise StorageError(
            f"{disk}/{_FILE} is gone, but the directory holds a cluster: put the file back from a copy, or set "
            "cluster.id to the cluster's id once, and the file is made again"
        )
    tell(Told(Kind.MADE_AGAIN, _FILE, f"{disk}/{_FILE} was gone, and is made again with cluster.id={cluster_id}"))


def read_properties(disk: Disk, sealed: str | None = None) -> MetaProperties | None:
    """The file's content, or else what it held when the broker saw it last; None when neither can be read."""
    for content in (disk.own_files().read(_FILE), None if sealed is None else sealed.encode()):
        with suppress(StorageError):
            if content is not None:
                return _decode(f"{disk}/{_FILE}", content, random.Random(0))
    return None


def _decode(path: str, content: bytes, rng: random.Random) -> MetaProperties:
    values: dict[str, str] = {}
    try:
        for line in content.decode().splitlines():
            key, _, value = line.partition("=")
            values[key.strip()] = _ESCAPED.sub(r"\1", value.strip())
        if values.get("version", _VERSION) != _VERSION:
            raise StorageError(
                f"{path} is of version {values['version']}, and Ottla knows version {_VERSION}, that of a KRaft node: "
                "the directory must be Apache Kafka 3.3's or a newer one's"
            )
        directory_id = topic_id_bytes(values["directory.id"]) if "directory.id" in values else new_uuid(rng)
        return MetaProperties(values["cluster.id"], int(values["node.id"]), directory_id)
    except (KeyError, ValueError, CorruptDataError) as fault:
        raise StorageError(f"{path} is damaged ({fault}): put it back from a copy") from None


def new_uuid(rng: random.Random) -> bytes:
    """A uuid that Kafka accepts: its text must not begin with a dash, which would look like an option.

    It is drawn again until that is so, as Kafka's `Uuid.randomUuid` does.
    """
    while True:
        made = uuid.UUID(int=rng.getrandbits(128), version=4).bytes
        if not topic_id_text(made).startswith("-"):
            return made

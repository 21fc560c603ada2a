"""Features of a cluster (KIP-584): their levels say how records are to be read. We know those of Apache Kafka 4.3."""

from types import MappingProxyType
from typing import Final

from ottla.base.errors import StorageError
from ottla.broker.metadata.names import METADATA_FOLDER
from ottla.broker.metadata.records import FeatureLevelRecord

METADATA_VERSION_FEATURE: Final = "metadata.version"
#: The consumer protocol (KIP-848).
GROUP_VERSION_FEATURE: Final = "group.version"
ELIGIBLE_LEADER_REPLICAS_FEATURE: Final = "eligible.leader.replicas.version"
#: `metadata.version` 4.3-IV0.
NEWEST_METADATA_VERSION: Final = 30
#: The highest level of each that Apache Kafka 4.3 has.
_NEWEST: Final = MappingProxyType(
    {
        METADATA_VERSION_FEATURE: NEWEST_METADATA_VERSION,
        GROUP_VERSION_FEATURE: 1,
        "transaction.version": 2,
        ELIGIBLE_LEADER_REPLICAS_FEATURE: 1,
        "share.version": 1,
        "streams.version": 1,
    }
)


def check_known(record: FeatureLevelRecord) -> None:
    """StorageError when what follows may mean something that we do not know."""
    newest = _NEWEST.get(record.name, 0)
    if record.feature_level <= newest:
        return
    known = f"knows them up to {newest}" if newest else "does not know this feature"
    raise StorageError(
        f"the metadata log ({METADATA_FOLDER}) is of {record.name} {record.feature_level}, and this version of Ottla "
        f"{known}: start the newer version that wrote it"
    )

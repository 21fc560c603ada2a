"""Features of a cluster (KIP-584): their levels say how records are to be read. We know those of Apache Kafka 4.3."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.base.errors import StorageError
from ottla.broker.metadata.names import METADATA_FOLDER
from ottla.broker.metadata.records import METADATA_VERSION, FeatureLevelRecord

METADATA_VERSION_FEATURE: Final = "metadata.version"
#: The consumer protocol (KIP-848).
GROUP_VERSION_FEATURE: Final = "group.version"
#: Transactions of KIP-890.
TRANSACTION_VERSION_FEATURE: Final = "transaction.version"
#: That of the quorum itself, which no record of a level tells.
KRAFT_VERSION_FEATURE: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_FEATURE: Final = "eligible.leader.replicas.version"
#: `metadata.version` 4.3-IV0.
NEWEST_METADATA_VERSION: Final = 30
#: The highest level of each that Apache Kafka 4.3 has.
_NEWEST: Final = MappingProxyType(
    {
        METADATA_VERSION_FEATURE: NEWEST_METADATA_VERSION,
        GROUP_VERSION_FEATURE: 1,
        TRANSACTION_VERSION_FEATURE: 2,
        ELIGIBLE_LEADER_REPLICAS_FEATURE: 1,
        "share.version": 1,
        "streams.version": 1,
    }
)


class Levels(NamedTuple):
    """From which level of a feature to which this broker knows it."""

    lowest: int
    highest: int


#: What this broker has, as it tells clients. The others of a directory of Apache Kafka are kept for it.
SUPPORTED: Final[Mapping[str, Levels]] = MappingProxyType(
    {
        GROUP_VERSION_FEATURE: Levels(0, 1),
        METADATA_VERSION_FEATURE: Levels(7, NEWEST_METADATA_VERSION),
        TRANSACTION_VERSION_FEATURE: Levels(0, 2),
    }
)


def level_of(levels: Mapping[str, int], name: str) -> int:
    """By which level of a feature this broker acts, where the metadata says `levels`; 0 for a feature it has not.

    The metadata decides on its own version. KIP-848 and KIP-890 are always in force.
    """
    if name == METADATA_VERSION_FEATURE:
        return levels.get(name, METADATA_VERSION)
    return SUPPORTED[name].highest if name in SUPPORTED else 0


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

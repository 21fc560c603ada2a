"""Names of topics that the broker keeps for itself, and names that are too alike.

`base.topic_names` says which are legal.
"""

from typing import Final

GROUP_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
#: The topic of share groups. There are no share groups here; the name is only reserved.
SHARE_TOPIC: Final = "__share_group_state"
#: The history of groups, which Apache Kafka does not have: to it this is a topic like any other.
GROUP_EVENTS_TOPIC: Final = "__ottla_group_events"
METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_FOLDER: Final = f"{METADATA_TOPIC}-0"
#: Files of Apache Kafka's: its quorum's vote, in that folder, and what a new cluster begins with.
QUORUM_STATE: Final = "quorum-state"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
#: The file that says which cluster and node the data directory belongs to.
META_PROPERTIES: Final = "meta.properties"
INTERNAL_TOPICS: Final = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC, GROUP_EVENTS_TOPIC})
#: Nothing in these belongs to a transaction: its marker would be a record that the coordinator does not know.
NOT_IN_TRANSACTIONS: Final = INTERNAL_TOPICS - {GROUP_TOPIC}


def collision_key(name: str) -> str:
    """Two topics with equal keys would have the same name in metrics, where `.` becomes `_`."""
    return name.replace(".", "_")


class TopicNames:
    """Names of topics, and which of them are the same in metrics. No question takes longer where there are more."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        #: Only names with one of the two characters can be alike.
        self._alike: dict[str, dict[str, None]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        """A topic has this name, or will have it."""
        self._names.add(name)
        if "." in name or "_" in name:
            self._alike.setdefault(collision_key(name), {})[name] = None

    def remove(self, name: str) -> None:
        """No topic has it any more."""
        self._names.discard(name)
        key = collision_key(name)
        alike = self._alike.get(key, {})
        alike.pop(name, None)
        if not alike:
            self._alike.pop(key, None)

    def alike(self, name: str) -> tuple[str, ...]:
        """The names that are the same as this one in metrics."""
        return tuple(self._alike.get(collision_key(name), ()))

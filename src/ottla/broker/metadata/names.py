"""Topic names: which are legal, which are Kafka's own."""

import re
from typing import Final

GROUP_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
#: The topic of share groups. There are no share groups here; the name is only reserved.
SHARE_TOPIC: Final = "__share_group_state"
METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC})

#: Kafka's limit: a directory name `<topic>-<partition>.<uuid>-delete` must fit into 255 bytes.
_MAX_NAME_LENGTH: Final = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """What is wrong with a topic's name, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return "'.' or '..' is not allowed"
    if len(name) > _MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {_MAX_NAME_LENGTH}"
    if _LEGAL.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Two topics with equal keys would have the same name in metrics, where `.` becomes `_`."""
    return name.replace(".", "_")

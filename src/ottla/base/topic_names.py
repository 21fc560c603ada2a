"""Which names a topic can have: the rule of Apache Kafka, in its words. Client and broker hold to it alike."""

import re
from typing import Final

#: Kafka's limit: a directory name `<topic>-<partition>.<uuid>-delete` must fit into 255 bytes.
MAX_TOPIC_NAME_LENGTH: Final = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """What is wrong with a topic's name, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return "'.' or '..' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    if _LEGAL.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None

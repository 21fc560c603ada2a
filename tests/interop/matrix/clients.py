"""Which client has which protocol: what they say of themselves."""

from __future__ import annotations

import inspect
from typing import Final

import aiokafka
import kafka
from aiokafka.coordinator import assignors

CLIENTS: Final = ("ours", "confluent-kafka", "java", "kafka-python", "aiokafka")
#: How a group may share its partitions: all give up all, only what moves is given up, or the coordinator says it.
MODES: Final = ("eager", "cooperative", "consumer")
#: What a group's members choose at first, and what they change to: protocol, then both strategies.
STRATEGIES: Final = {
    "eager": ("classic", "roundrobin", "range"),
    "cooperative": ("classic", "range", "cooperative-sticky"),  # that is how people get there (KIP-429)
    "consumer": ("consumer", "uniform", "range"),
}
#: Those that refuse a list of an eager and a cooperative strategy: a group of theirs changes while nobody is in it.
_DO_NOT_MIX: Final = ("confluent-kafka", "kafka-python")
_HAVE_NOT: Final = {("kafka-python", "consumer"), ("aiokafka", "consumer"), ("aiokafka", "cooperative")}


def has(client: str, mode: str) -> bool:
    """Whether a client has a mode."""
    return (client, mode) not in _HAVE_NOT


def can_mix(client: str) -> bool:
    """Whether a member may offer eager and cooperative strategies, so that its group can change as it runs."""
    return client not in _DO_NOT_MIX


def says_that_it_has_not(client: str, mode: str) -> bool:
    """Whether the installed version says by itself that it lacks a mode: a newer one may have it."""
    match client, mode:
        case "kafka-python", "consumer":
            return "group_protocol" not in kafka.KafkaConsumer.DEFAULT_CONFIG
        case "aiokafka", "consumer":
            return "group_protocol" not in inspect.signature(aiokafka.AIOKafkaConsumer).parameters
        case "aiokafka", "cooperative":
            return not any("cooperative" in name for name in dir(assignors))
        case _:
            return False

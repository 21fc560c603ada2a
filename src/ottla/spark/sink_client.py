"""A sink's id, and its producer's keys: what its semantics needs of them, and why. Pure."""

import hashlib
import re
from collections.abc import Mapping

from ottla.base.errors import ConfigError
from ottla.client.config.producer import producer_config

#: A sink's id becomes part of transactional ids and of a topic's name.
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_DEFAULTS: Mapping[str, object] = {"batch.size": 524_288, "linger.ms": 20, "transaction.timeout.ms": 600_000}
#: Producer keys that the user may not set: the sink's guarantee depends on their values.
_OURS = (
    "transactional.id",
    "key.serializer",
    "value.serializer",
    "transaction.two.phase.commit.enable",
)
#: What exactly-once needs → why; the values that it takes are those of an idempotent producer.
_NEEDED = {
    "enable.idempotence": "a request that is repeated would write its rows twice",
    "acks": "rows that one broker alone has are lost with it, although their batch was decided",
    "retries": "rows whose request was lost would be missing",
    "max.in.flight.requests.per.connection": "brokers keep the order of five requests, and not of more",
}


def sink_client(kafka: Mapping[str, object], *, exactly_once: bool) -> dict[str, object]:
    """The producer's configuration from the user's `kafka.` keys, without the prefix. Raises ConfigError."""
    for name in _OURS:
        if name in kafka:
            instead = ": see the option two.phase.commit" if "two.phase" in name else ""
            raise ConfigError(f"kafka.{name} is set by the sink itself{instead}")
    client = {**_DEFAULTS, **kafka}
    if not exactly_once:
        if str(kafka.get("acks")) == "0":
            raise ConfigError(
                "kafka.acks=0: nobody would know whether a row was written, and at-least-once could not be kept; "
                "set it to 1 or all"
            )
        producer_config(client)
        return client
    chosen = producer_config({**client, "enable.idempotence": kafka.get("enable.idempotence", False)})
    fits = {
        "enable.idempotence": "enable.idempotence" not in kafka or chosen.enable_idempotence,
        "acks": chosen.required_acks == -1,
        "retries": chosen.retries > 0,
        "max.in.flight.requests.per.connection": chosen.max_in_flight_requests_per_connection <= 5,
    }
    for name, why in _NEEDED.items():
        if not fits[name]:
            raise ConfigError(
                f"kafka.{name}={kafka[name]} contradicts semantics=exactly-once: {why}. Leave it out, or set "
                "semantics to at-least-once"
            )
    return {**client, "enable.idempotence": True}


def sink_id(own: Mapping[str, object]) -> str:
    """`sink.id`, or one that stays the same as long as the query does."""
    given = None if own["sink.id"] is None else str(own["sink.id"])
    if given is None:
        # The query's id would not do: a foreachBatch function may write twice, and the sink would take the second write
        # for a replay of the first.
        stable = own["queryName"] or own["checkpointLocation"]
        if stable is None:
            raise ConfigError(
                "the exactly-once sink needs a name that is the same after a restart: set the option sink.id "
                "(or queryName, or checkpointLocation on the writer), or semantics to at-least-once"
            )
        given = f"ottla-{_letters_for_an_id(str(stable))}"
    if not _NAME.fullmatch(given):
        raise ConfigError(f"sink.id {given!r}: letters, digits, '.', '_' and '-' are allowed, at most 200")
    return given


def _letters_for_an_id(name: str) -> str:
    """`name` in the letters that a sink's id may have. A name in another alphabet gets a digest: else all are alike."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("_")[-150:]
    if plain and name.isascii():
        return plain
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:16]}".lstrip("-")

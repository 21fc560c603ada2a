"""A sink's id, and its producer's keys: what its semantics needs of them, and why."""

import hashlib
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

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
        name, checkpoint = own["queryName"], own["checkpointLocation"]
        given = default_sink_id(None if name is None else str(name), None if checkpoint is None else str(checkpoint))
        if given is None:
            raise ConfigError(
                "the exactly-once sink needs a name that is the same after a restart: set the option sink.id "
                "(or queryName, or checkpointLocation on the writer), or semantics to at-least-once"
            )
    if not _NAME.fullmatch(given):
        raise ConfigError(f"sink.id {given!r}: letters, digits, '.', '_' and '-' are allowed, at most 200")
    return given


def default_sink_id(name: str | None, checkpoint: str | None) -> str | None:
    """The id of a sink that was given none. However the checkpoint's location is written, it is the same one."""
    if not name and not checkpoint:
        return None
    whole = name or _location(checkpoint or "")
    plain = _plain(whole)
    return f"ottla-{plain}" if plain == whole else "-".join(("ottla", *filter(None, [plain]), _digest(whole)))


def former_default_sink_ids(name: str | None, checkpoint: str | None) -> tuple[str, ...]:
    """... in versions that told names apart by the letters alone that an id may have; and before, also by how the
    checkpoint's location was written."""
    if name:
        return (_former_id(name),)
    return (_former_id(_location(checkpoint)), _former_id(checkpoint)) if checkpoint else ()


def _location(text: str) -> str:
    """A checkpoint's location in one form, for all ways to write it that mean the same to Hadoop."""
    scheme, colon, path = text.partition(":")
    if not colon or "/" in scheme:
        local = Path(text).absolute()
        # A relative one may be relative to something else: the file system that Hadoop has by default.
        return posixpath.normpath(local if local.is_dir() else text)
    scheme = scheme.lower()
    if scheme == "file":
        return posixpath.normpath("/" + path.lstrip("/"))
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    return f"{scheme}://{posixpath.normpath(path.lstrip('/'))}"


def _plain(name: str) -> str:
    """`name` in the letters that a sink's id may have, as far as there is room. Other names may become the same."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("_")[-150:]


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _former_id(name: str) -> str:
    plain = _plain(name)
    digest = () if plain and name.isascii() else (_digest(name),)
    return "-".join(("ottla", *filter(None, [plain]), *digest))

"""How the demo's parts reach the broker: in plain text, by the user's own file, or over TLS with the rights each needs.

With `--secure` the broker has one listener, SASL_SSL, and an authorizer. Four users come to it with a password each
(SCRAM-SHA-512): `admin` makes topics and ACLs, `writer` writes the text, `pipeline` is the Spark job, `reader` checks.
"""

from __future__ import annotations

import os
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla import AclBinding

_USERS = ("admin", "writer", "pipeline", "reader")
#: Long enough for any run, and for a look at what `--keep` has left.
_DAYS = 7
_HOST = "127.0.0.1"
LEDGER = "__ottla_ledger"


class Access(NamedTuple):
    """Client settings of each part, beside the broker's address. Without any, nobody is asked who he is."""

    admin: Mapping[str, str] = {}
    writer: Mapping[str, str] = {}
    reader: Mapping[str, str] = {}
    #: The properties file that the pipeline and `ottla --config` read.
    pipeline: Path | None = None
    look: Path | None = None
    #: Whether librdkafka knows the reader's settings, too.
    is_foreign: bool = True
    #: What a broker of the demo's own is told beside its port and directory.
    broker: tuple[str, ...] = ()
    authority: Path | None = None

    def tls(self) -> ssl.SSLContext | None:
        """What a probe of the broker's port speaks."""
        return None if self.authority is None else ssl.create_default_context(cafile=str(self.authority))


class Names(NamedTuple):
    """What the demo's job is about."""

    source: str
    target: str
    group: str
    sink: str


def secure(directory: Path, port: int) -> Access:
    """Make an authority, the broker's certificate, and a password and properties file for each user, in `directory`.

    Raises CommandError when a package is missing.
    """
    from ottla.broker.config_keys import STANDARD_AUTHORIZER
    from ottla.cli.certs import certs

    certs(directory, host=[_HOST], days=_DAYS)
    authority = directory / "ca.pem"
    files = {user: directory / f"{user}.properties" for user in _USERS}
    settings = {}
    users: list[str] = []
    for user, file in files.items():
        password = secrets.token_urlsafe(24)
        settings[user] = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }
        known = {"bootstrap.servers": f"{_HOST}:{port}", **settings[user]}
        _write(file, "".join(f"{key}={_escaped(value)}\n" for key, value in known.items()))
        _write(directory / f"{user}.password", f"{password}\n")
        users += ["--add-scram", f"{user}={directory / user}.password"]
    keys = {
        "listeners": f"SASL_SSL://{_HOST}:{port}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    return Access(
        admin=settings["admin"],
        writer=settings["writer"],
        reader=settings["reader"],
        pipeline=files["pipeline"],
        look=files["admin"],
        broker=(*users, *(word for key, value in keys.items() for word in ("-o", f"{key}={value}"))),
        authority=authority,
    )


def of_the_users_file(path: Path, settings: Mapping[str, str]) -> Access:
    """What `ottla --config FILE` gives: one access for all parts. `settings` are its keys for every kind of client."""
    return Access(settings, settings, settings, path, path, is_foreign=False)


def acls(names: Names, *, exactly_once: bool) -> list[AclBinding]:
    """Just what each user needs. What the pipeline has is the list of docs/spark.md."""
    from ottla import AclBinding, AclOperation, AclPatternType, AclResourceType

    topic, group, transaction = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
    read, write, create = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
    me = "User:pipeline"
    sink_only = [
        AclBinding(group, names.group, me, read),
        *(AclBinding(topic, LEDGER, me, right) for right in (read, write, create)),
        AclBinding(transaction, f"__ottla/{names.sink}/", me, write, pattern_type=AclPatternType.PREFIXED),
    ]
    return [
        AclBinding(topic, names.source, "User:writer", write),
        AclBinding(topic, names.source, me, read),
        AclBinding(topic, names.target, me, write),
        *(sink_only if exactly_once else ()),
        AclBinding(topic, names.target, "User:reader", read),
        AclBinding(group, f"{names.target}-check", "User:reader", read),
    ]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def _write(path: Path, text: str) -> None:
    """A new file that only this user can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
        file.write(text)

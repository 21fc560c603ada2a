"""The first users of a directory: without one, nobody could add another over SASL."""

import random
from collections.abc import Mapping

from ottla.base.secret import Secret
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.metadata.records import UserScramCredentialRecord
from ottla.wire.sasl.scram import HASHES, MECHANISM_NUMBERS, SALT_BYTES, USUAL_ITERATIONS, new_credential


def add_users(metadata: ClusterMetadata, passwords: Mapping[str, Secret], rng: random.Random) -> None:
    """Give each of these users SCRAM credentials; who has some keeps them. Before anybody is served.

    Raises StorageError.
    """
    records = [
        UserScramCredentialRecord(
            name, number, *new_credential(HASHES[mechanism], password, rng.randbytes(SALT_BYTES), USUAL_ITERATIONS)
        )
        for name, password in passwords.items()
        if not any(name in users for users in metadata.image.scram.values())
        for mechanism, number in MECHANISM_NUMBERS.items()
    ]
    if records:
        metadata.write_now(metadata.change(records))

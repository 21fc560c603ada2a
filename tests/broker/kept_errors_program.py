"""A process of its own, in which errors are made and kept: prints those that only a full collection would free."""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

import pytest

from ottla.base.errors import CorruptDataError, OttlaError
from ottla.broker.metadata.quota_rules import Alteration, decide
from ottla.broker.metadata.rules import RefusedError
from ottla.broker.quotas.table import QuotaTable
from ottla.broker.runtime.recompression import Recompression
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.timestamps import BatchSearch
from ottla.wire.batch import parse_header, seal
from ottla.wire.compression import Compression
from ottla.wire.sasl import SaslError, SaslRefusedError
from ottla.wire.sasl.oauthbearer import Accepted, OAuthBearerServer
from tests.log.batches import batch


def refused_quota() -> None:
    wanted = Alteration((("no such type", "x"),), (("producer_byte_rate", 1.0),))
    results: dict[Any, RefusedError | None] = {}
    assert list(decide(QuotaTable(), [wanted], results)) == [None]
    assert all(results.values())


def refused_token() -> None:
    def check(token: str) -> Accepted:
        raise SaslError(f"{token} is not a good one")

    server = OAuthBearerServer(check)
    server.answer(b"n,,\1auth=Bearer x\1\1")
    with pytest.raises(SaslRefusedError):
        server.answer(b"\1")


def _damaged(codec: Compression) -> bytes:
    """A batch that says it is compressed, with the right checksum."""
    records = bytearray(batch(attributes=codec))
    records[-4:] = b"\xff" * 4
    seal(records)
    return bytes(records)


def not_compressed_anew() -> None:
    records = _damaged(Compression.GZIP)
    recompression = Recompression()
    recompression.add(records, LogConfig(compression=Compression.LZ4))
    recompression._work()
    assert isinstance(recompression.faults[id(records)], OttlaError)


def searched_in_vain() -> None:
    records = _damaged(Compression.GZIP)
    file = MemoryStorage().open("00000000000000000000.log", create=True)
    file.append([records])
    with pytest.raises(CorruptDataError):
        BatchSearch(file, 0, parse_header(records), 0, 0).result()


ACTS = {act.__name__: act for act in (refused_quota, refused_token, not_compressed_anew, searched_in_vain)}

if __name__ == "__main__":
    gc.collect()
    gc.disable()
    ACTS[sys.argv[1]]()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    print(json.dumps([repr(each) for each in gc.garbage if isinstance(each, OttlaError)]))

"""The broker leaves nothing of its own to the full collection, so that it can do without (`broker.garbage`)."""

import gc
import json
import subprocess
import sys
from collections.abc import Callable
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


def _said(module: str) -> Any:
    return json.loads(subprocess.run([sys.executable, "-m", module], stdout=subprocess.PIPE, check=True).stdout)


def test_a_broker_leaves_nothing_of_its_own_to_the_full_collection() -> None:
    assert _said("tests.broker.garbage_program") == {}


def test_what_is_left_to_it_nevertheless_does_not_grow_while_clients_are_served() -> None:
    assert _said("tests.broker.busy_garbage_program") == {"few": [True], "many": [False, False]}


def _refused_quota() -> None:
    wanted = Alteration((("no such type", "x"),), (("producer_byte_rate", 1.0),))
    results: dict[Any, RefusedError | None] = {}
    assert list(decide(QuotaTable(), [wanted], results)) == [None]
    assert all(results.values())


def _refused_token() -> None:
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


def _not_compressed_anew() -> None:
    records = _damaged(Compression.GZIP)
    recompression = Recompression()
    recompression.add(records, LogConfig(compression=Compression.LZ4))
    recompression._work()
    assert isinstance(recompression.changed(records), OttlaError)


def _searched_in_vain() -> None:
    records = _damaged(Compression.GZIP)
    file = MemoryStorage().open("00000000000000000000.log", create=True)
    file.append([records])
    with pytest.raises(CorruptDataError):
        BatchSearch(file, 0, parse_header(records), 0, 0).result()


@pytest.mark.parametrize("act", [_refused_quota, _refused_token, _not_compressed_anew, _searched_in_vain])
def test_an_error_that_is_kept_is_in_no_cycle(act: Callable[[], None]) -> None:
    gc.collect()
    gc.disable()
    try:
        act()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert [repr(each) for each in gc.garbage if isinstance(each, OttlaError)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()

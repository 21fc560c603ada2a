"""Apache Kafka's DumpLogSegments reads the whole data directory of our broker, with its decoders of internal topics."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import (
    Admin,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    DeleteScramCredential,
    ScramMechanism,
    SetScramCredential,
)
from ottla.base.secret import Secret
from ottla.testing import Broker
from tests.interop.apache import run_tool
from tests.interop.pipeline import run_pipeline

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

_KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.fixture(params=["stopped", "killed and recovered"], scope="module")
def data_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a broker that has run the pipeline and stopped."""
    path = tmp_path_factory.mktemp("data")
    with Broker({"group.initial.rebalance.delay.ms": "0"}, data_dir=path) as broker:
        run_pipeline(broker.bootstrap_servers)
        with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            for user in ("alice", "bob"):
                wanted = SetScramCredential(user, ScramMechanism.SCRAM_SHA_512, Secret("a password"), 4096)
                admin.alter_user_scram_credentials([wanted])
            admin.alter_user_scram_credentials([DeleteScramCredential("bob", ScramMechanism.SCRAM_SHA_512)])
            both = ClientQuotaEntity(user="alice", client_id="")
            admin.alter_client_quotas([ClientQuotaAlteration(both, {"request_percentage": 12.5})])
            admin.alter_client_quotas([ClientQuotaAlteration(both, {"request_percentage": None})])
        if request.param != "stopped":
            broker.kill()
            broker.start()
        broker.stop()
        yield path


def _files(data_dir: Path, pattern: str) -> list[Path]:
    return sorted(path for path in data_dir.glob(pattern) if path.suffix in _KINDS and path.stat().st_size > 0)


def _dump(files: list[Path], *options: str) -> str:
    done = run_tool("DumpLogSegments", *options, "--files", ",".join(map(str, files)))
    assert done.stderr == ""
    for word in ("invalid bytes", "Mismatch", "isvalid: false", "Error at offset", "Unknown record type"):
        assert word not in done.stdout
    return done.stdout


def test_every_file_of_the_data_directory_is_read(data_dir: Path) -> None:
    topics = [path for path in _files(data_dir, "*-*/*") if not path.parent.name.startswith("__cluster_metadata")]
    assert {path.suffix for path in topics} == {".log", ".timeindex", ".txnindex", ".snapshot"}
    dumped = _dump(topics, "--deep-iteration", "--print-data-log")
    assert "payload: LINE 49" in dumped
    assert "endTxnMarker: ABORT" in dumped


def test_groups_and_offsets_are_decoded(data_dir: Path) -> None:
    dumped = _dump(_files(data_dir, "__consumer_offsets-*/*.log"), "--offsets-decoder")
    assert '"group":"words"' in dumped
    assert '"offset":50' in dumped


def test_transactions_are_decoded(data_dir: Path) -> None:
    dumped = _dump(_files(data_dir, "__transaction_state-*/*.log"), "--transaction-log-decoder")
    assert '"transactionalId":"pipeline"' in dumped
    assert '"transactionStatus":' in dumped


def test_users_are_decoded(data_dir: Path) -> None:
    dumped = _dump(_files(data_dir, "__cluster_metadata-0/*.log"), "--cluster-metadata-decoder")
    assert '"type":"USER_SCRAM_CREDENTIAL_RECORD","version":0,"data":{"name":"alice","mechanism":2,' in dumped
    assert '"iterations":4096' in dumped
    assert '"type":"REMOVE_USER_SCRAM_CREDENTIAL_RECORD","version":0,"data":{"name":"bob","mechanism":2}' in dumped


def test_quotas_are_decoded(data_dir: Path) -> None:
    dumped = _dump(_files(data_dir, "__cluster_metadata-0/*.log"), "--cluster-metadata-decoder")
    entity = '"entity":[{"entityType":"client-id","entityName":null},{"entityType":"user","entityName":"alice"}]'
    assert '"type":"CLIENT_QUOTA_RECORD","version":0,"data":{' + entity in dumped
    assert '"key":"request_percentage","value":12.5,"remove":false}' in dumped
    assert '"key":"request_percentage","value":0.0,"remove":true}' in dumped

"""Every message of every version: our bytes are kio's bytes, and both read them back as what was said."""

import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import NULL_UUID, WireError
from ottla.wire.frames import decode_request, encode_request
from ottla.wire.schema import Field, decode, decode_steps, encode, encode_steps, schema

kio_serial = pytest.importorskip("kio.serial")

NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-128, 127),
    "int16": st.integers(0, 100),
    "int32": st.integers(-1, 2**31 - 1),
    "int64": st.integers(-1, 2**40),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
    "records": st.binary(max_size=20),
    "uuid": st.one_of(st.just(NULL_UUID), st.binary(min_size=16, max_size=16)),
}


def versions() -> Iterator[Any]:
    """(api, version, "request" or "response") of everything there is."""
    for api in API.values():
        for version in range(api.min_version, api.max_version + 1):
            for kind in ("request", "response"):
                yield pytest.param(api, version, kind, id=f"{api.name}-v{version}-{kind}")


def value(field: Field, kind: Any, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, list):
        made: st.SearchStrategy[Any] = st.lists(value(Field(field.name, kind[0]), kind[0], version), max_size=2).map(
            tuple
        )
    elif field.name == "transaction_start_time_ms":
        made = st.integers(0, 2**40)  # kio holds it as a date and cannot read the -1 of a transaction not begun
    elif isinstance(kind, str):
        made = NUMBERS[kind]
    else:
        made = message(kind, version)
    nullable = field.null_first <= version <= field.null_last
    return st.one_of(st.none(), made) if nullable else made


def message(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Any value that `version` can say."""
    said = {f.name: value(f, f.type, version) for f in schema(cls).fields if f.first <= version <= f.last}
    return st.fixed_dictionaries(said).map(lambda values: cls(**values))


def kio_class(api: Any, version: int, kind: str) -> type[Any]:
    module = importlib.import_module(f"kio.schema.{api.module}.v{version}.{kind}")
    found: type[Any] = getattr(module, api.name + kind.capitalize())
    return found


def comparable(value: Any) -> Any:
    """Records come back as a view; everything else as it was."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, tuple):
        return tuple(comparable(v) for v in value)
    return value


def _decoded_in_steps(cls: type[Any], version: int, data: bytes) -> Any:
    steps = decode_steps(cls, version, data)
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return done.value


@pytest.mark.parametrize(("api", "version", "kind"), list(versions()))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_our_bytes_are_kios_bytes(api: Any, version: int, kind: str, data: st.DataObject) -> None:
    ours = data.draw(message(api.request if kind == "request" else api.response, version))
    encoded = encode(ours, version)
    assert b"".join(encode_steps(ours, version)) == encoded
    cls = kio_class(api, version, kind)
    theirs, size = kio_serial.entity_reader(cls)(encoded, 0)
    assert size == len(encoded)
    buffer = bytearray()

    class Sink:
        def write(self, data: bytes) -> None:
            buffer.extend(data)

    kio_serial.entity_writer(cls)(Sink(), theirs)
    assert bytes(buffer) == encoded
    assert comparable(decode(type(ours), version, encoded)) == comparable(tuple(ours))
    assert comparable(_decoded_in_steps(type(ours), version, encoded)) == comparable(tuple(ours))
    if kind == "request":
        frame = encode_request(api.key, version, 7, "me", ours)
        header, offset = decode_request(frame[4:])
        assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (
            api.key,
            version,
            7,
            "me",
        )
        assert frame[4 + offset :] == encoded


@pytest.mark.parametrize("api", API.values(), ids=lambda api: api.name)
def test_versions_and_flexibility_are_kafkas(api: Any) -> None:
    package = importlib.import_module(f"kio.schema.{api.module}")
    known = sorted(int(m.name[1:]) for m in pkgutil.iter_modules(package.__path__))
    assert (api.min_version, api.max_version) == (known[0], known[-1])
    for version in known:
        cls: Any = kio_class(api, version, "request")
        assert cls.__api_key__ == api.key
        assert cls.__flexible__ == (version >= api.flexible_from)


@pytest.mark.parametrize("api", API.values(), ids=lambda api: api.name)
@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=200))
def test_garbage_is_a_wire_error(api: Any, data: bytes) -> None:
    for version in (api.min_version, api.max_version):
        with suppress(WireError):
            decode(api.request, version, data)


@pytest.mark.parametrize(("api", "version", "kind"), [p for p in versions() if p.values[1] == p.values[0].max_version])
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_prefix_of_a_message_is_refused(api: Any, version: int, kind: str, data: st.DataObject) -> None:
    ours = data.draw(message(api.request if kind == "request" else api.response, version))
    encoded = encode(ours, version)
    for end in range(len(encoded)):
        with pytest.raises(WireError) as refused:
            decode(type(ours), version, encoded[:end])
        with pytest.raises(WireError, match=re.escape(str(refused.value))):
            _decoded_in_steps(type(ours), version, encoded[:end])
    with pytest.raises(WireError):
        decode(type(ours), version, encoded + b"\0")


def test_the_generated_modules_are_what_the_generator_writes() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(root / "tools/gen_messages.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_array_that_cannot_fit_is_refused_before_it_is_made() -> None:
    from ottla.wire.messages.metadata import MetadataRequest

    with pytest.raises(WireError, match="array of 2147483647"):
        decode(MetadataRequest, 1, b"\x7f\xff\xff\xff" + bytes(20))


def test_a_version_that_cannot_say_it_refuses() -> None:
    from ottla.wire.messages.find_coordinator import FindCoordinatorRequest

    with pytest.raises(WireError, match=r"FindCoordinatorRequest v0.*key_type: 1 cannot be said"):
        encode(FindCoordinatorRequest(key="t", key_type=1), 0)
    assert ApiKey.FIND_COORDINATOR in API

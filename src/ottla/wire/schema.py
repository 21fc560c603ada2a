"""How messages are declared, and how one becomes bytes and back.

A message is a `typing.NamedTuple` with the fields of all versions. Beside it is a table with a `Field` for each field:
its type, the versions that have it, the versions in which it may be null, and its tag. `declare` joins the two.
Versions end here: code that uses the tuple need not know from which version it came.

Field types are Kafka's names ("int32", "string", "uuid", "records"…), a declared class for a struct, and a list of
one such for an array: `["int32"]`, `[FetchTopic]`.
"""

from collections.abc import Generator, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from ottla.wire import codec
from ottla.wire.codec import KINDS, NO_LIMIT, FieldPlan, StructPlan, WireError

M = TypeVar("M", bound=tuple[Any, ...])

LATEST: Final = 32767
#: Elements that are read or written in one step; one that has more elements of its own takes several.
_STEP_ELEMENTS: Final = 100
#: A step of reading ends behind so many bytes: an element may have megabytes, which are copied.
_STEP_BYTES: Final = 1_048_576


class Field(NamedTuple):
    """One field of a message: where and how it appears on the wire."""

    name: str
    type: Any
    #: First and last version that carry the field.
    first: int = 0
    last: int = LATEST
    #: First and last version in which it may be null; none when `null_first` is above `null_last`.
    null_first: int = 1
    null_last: int = 0
    #: Its number when it is a tagged field, else -1.
    tag: int = -1
    #: True: a version without this field drops its value in silence (Kafka's "ignorable"). False: that is an error.
    ignorable: bool = True


class Schema(NamedTuple):
    """A declared class: its fields and the first version that is flexible (KIP-482)."""

    cls: type[Any]
    fields: tuple[Field, ...]
    flexible_from: int


_SCHEMAS: dict[type[Any], Schema] = {}


class _Plans(dict[tuple[type[Any], int], StructPlan]):
    """The plan of each declared class in each version, made at its first use."""

    def __missing__(self, key: tuple[type[Any], int]) -> StructPlan:
        cls, version = key
        made = self[key] = _make(cls, version, version >= _SCHEMAS[cls].flexible_from)
        return made


_PLANS: Final = _Plans()


def declare(cls: type[Any], fields: tuple[Field, ...], *, flexible_from: int = LATEST) -> None:
    """Join the NamedTuple `cls` with its table. The names must be the same, in the same order."""
    names = tuple(f.name for f in fields)
    if names != cls._fields:
        raise TypeError(f"{cls.__name__}: table {names} is not the class's {cls._fields}")
    _SCHEMAS[cls] = Schema(cls, fields, flexible_from)


def schema(cls: type[Any]) -> Schema:
    """The table of a declared class."""
    return _SCHEMAS[cls]


def plan(cls: type[Any], version: int) -> StructPlan:
    """The plan of a declared class in one version; made once."""
    return _PLANS[cls, version]


def _make(cls: type[Any], version: int, flexible: bool) -> StructPlan:
    """A nested struct is flexible when its message is, so `flexible` goes down with the version."""
    fields = _SCHEMAS[cls].fields
    defaults: dict[str, Any] = cls._field_defaults
    made = StructPlan(cls, cls.__name__, flexible, [defaults[f.name] for f in fields])
    for index, f in enumerate(fields):
        if f.first <= version <= f.last:
            field_plan = _field_plan(f, f.type, index, version, flexible, defaults[f.name])
            if f.tag < 0:
                made.fields.append(field_plan)
            else:
                made.tagged.append((f.tag, field_plan))
        elif not f.ignorable:
            made.absent.append(FieldPlan(f.name, 0, index, False, flexible, defaults[f.name]))
    made.tagged.sort(key=lambda tagged: tagged[0])
    return made


def _field_plan(f: Field, type_: Any, index: int, version: int, flexible: bool, default: object) -> FieldPlan:
    nullable = f.null_first <= version <= f.null_last
    if isinstance(type_, list):
        made = FieldPlan(f.name, KINDS["array"], index, nullable, flexible, default)
        made.element = _field_plan(Field(f.name, type_[0]), type_[0], 0, version, flexible, None)
    elif isinstance(type_, str):
        made = FieldPlan(f.name, KINDS[type_], index, nullable, flexible, default)
    else:
        made = FieldPlan(f.name, KINDS["struct"], index, nullable, flexible, default)
        made.struct = _make(type_, version, flexible)
    return made


def decode(
    cls: type[M],
    version: int,
    data: codec.Buffer,
    offset: int = 0,
    *,
    exact: bool = True,
    max_elements: int = NO_LIMIT,
    max_field_bytes: int = NO_LIMIT,
) -> M:
    """Decode one `cls` of `version` from `data` at `offset`.

    Raises WireError when the bytes are not that, have more than `max_elements` elements in their arrays together, or
    more than `max_field_bytes` in one field that is copied, or, with `exact`, when some are left over.
    """
    try:
        value, end = codec.read_struct(_PLANS[cls, version], data, offset, max_elements, max_field_bytes)
    except WireError as error:
        raise type(error)(f"{cls.__name__} v{version}: {error}") from None
    if exact and end != len(data):
        raise WireError(f"{cls.__name__} v{version}: {len(data) - end} bytes left over at {end}")
    return value  # type: ignore[no-any-return]


def decode_steps(
    cls: type[M],
    version: int,
    data: codec.Buffer,
    offset: int = 0,
    *,
    max_elements: int = NO_LIMIT,
    max_field_bytes: int = NO_LIMIT,
) -> Generator[None, None, M]:
    """The same in steps, without `exact`, for a large message: a hundred elements in each, or fewer of many bytes."""
    reader = codec.Reader(data, offset, max_elements, max_field_bytes)
    try:
        value: M = yield from _read_steps(reader, plan(cls, version))
    except WireError as error:
        raise type(error)(f"{cls.__name__} v{version}: {error}") from None
    return value


def _read_steps(reader: codec.Reader, made: StructPlan) -> Generator[None, None, Any]:
    values = list(made.defaults)
    for f in made.fields:
        values[f.index] = (yield from _array_steps(reader, f)) if f.kind == KINDS["array"] else reader.field(f)
    if made.flexible:
        reader.tags(made, values)
    return tuple.__new__(made.cls, values)


def _array_steps(reader: codec.Reader, f: FieldPlan) -> Generator[None, None, tuple[Any, ...] | None]:
    count, inner = reader.array_length(f), f.element.struct
    if count < 0:
        return None
    items: list[Any] = []
    is_deep = inner is not None and any(field.kind == KINDS["array"] for field in inner.fields)
    while len(items) < count:
        if is_deep:
            items.append((yield from _read_steps(reader, inner)))
        else:
            end = reader.pos + _STEP_BYTES
            for _ in range(min(_STEP_ELEMENTS, count - len(items))):
                items.append(reader.field(f.element) if inner is None else reader.struct(inner))
                if reader.pos > end:
                    break
        yield
    return tuple(items)


def _is_of_structs(f: FieldPlan) -> bool:
    return f.kind == KINDS["array"] and f.element.kind == KINDS["struct"]


def encode(message: tuple[Any, ...], version: int) -> bytes:
    """Encode a declared message as `version`. WireError when that version cannot hold it."""
    try:
        return codec.write_struct(_PLANS[type(message), version], message)
    except WireError as error:
        raise type(error)(f"{type(message).__name__} v{version}: {error}") from None


def encode_pieces(message: tuple[Any, ...], version: int) -> list[codec.Buffer]:
    """The bytes of `encode` in pieces, because large fields are not copied: for a message that is sent at once."""
    try:
        return codec.write_pieces(_PLANS[type(message), version], message)
    except WireError as error:
        raise type(error)(f"{type(message).__name__} v{version}: {error}") from None


def encode_element_steps(cls: type[Any], version: int, field: str, element: tuple[Any, ...]) -> Iterator[codec.Buffer]:
    """The bytes that `encode` writes for a struct in an array of a `cls`, in pieces as `encode_steps`."""
    (array,) = (each for each in plan(cls, version).fields if each.name == field)
    try:
        yield from _element_steps(array.element.struct, element)
    except WireError as error:
        raise type(error)(f"{cls.__name__} v{version}, {field}: {error}") from None


def encode_steps(message: tuple[Any, ...], version: int) -> Iterator[codec.Buffer]:
    """The bytes of `encode` in pieces, few elements of its arrays in each, nested ones too: for one that takes long.

    Large fields are not copied. A list in the place of a struct has the pieces of one that `encode_element_steps` has
    encoded.
    """
    try:
        yield from _struct_steps(plan(type(message), version), message)
    except WireError as error:
        raise type(error)(f"{type(message).__name__} v{version}: {error}") from None


def _element_steps(made: StructPlan, element: tuple[Any, ...]) -> Iterator[codec.Buffer]:
    if has_more_elements(element, _STEP_ELEMENTS):
        yield from _struct_steps(made, element)
    else:
        yield from filter(len, codec.write_pieces(made, element))


def _struct_steps(made: StructPlan, value: tuple[Any, ...]) -> Iterator[codec.Buffer]:
    for f in made.fields:
        field = value[f.index]
        if field is not None and _is_of_structs(f):
            yield codec.write_length(f, len(field))
            for element in field:
                if type(element) is list:
                    yield from element
                else:
                    yield from _element_steps(f.element.struct, element)
        else:
            yield from filter(len, codec.write_field(f, field))
    yield codec.write_end(made, value)


def has_more_elements(value: tuple[Any, ...], count: int) -> bool:
    """Whether all arrays in a message or struct, nested ones too, have more than `count` elements together."""
    return _elements_left(value, count) < 0


def _elements_left(value: tuple[Any, ...], count: int) -> int:
    for field in value:
        if type(field) is tuple:
            count -= len(field)
            for element in field if count >= 0 else ():
                if isinstance(element, tuple) and count >= 0:
                    count = _elements_left(element, count)
        elif isinstance(field, tuple):
            count = _elements_left(field, count)
        if count < 0:
            break
    return count


def has_more_bytes(value: tuple[Any, ...], count: int) -> bool:
    """Whether all texts and bytes in a message or struct, nested ones too, have more than `count` bytes together.

    (Characters are counted, for texts.)
    """
    return _bytes_left(value, count) < 0


def _bytes_left(value: tuple[Any, ...], count: int) -> int:
    for field in value:
        if isinstance(field, tuple):
            count = _bytes_left(field, count)
        elif isinstance(field, (bytes, str)):
            count -= len(field)
        if count < 0:
            break
    return count


def carries_bytes(cls: type[Any]) -> bool:
    """Whether a declared class, or a struct in it, has a field of bytes, which may be of any length."""
    types = (f.type[0] if isinstance(f.type, list) else f.type for f in _SCHEMAS[cls].fields)
    return any(each == "bytes" if isinstance(each, str) else carries_bytes(each) for each in types)

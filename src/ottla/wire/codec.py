"""Reads and writes Kafka's structs by table.

`ottla.wire.schema` turns a message's field table and a version into a `StructPlan`; this module walks the plan. It is
one of the compiled modules: plain Python typed by `codec.pxd`, so the same source runs interpreted, slower.

Reading never trusts a length: a string, byte field or array longer than the bytes that are left is refused before
anything is allocated. Writing refuses what the wire cannot hold. Both raise WireError.
"""

import struct
from typing import Any

from ottla.base.limits import MAX_ARRAY_ELEMENTS, MAX_STRING_BYTES, MAX_TAGGED_FIELDS
from ottla.wire.codec_errors import TooManyElementsError as TooManyElementsError
from ottla.wire.codec_errors import UnwritableTextError as UnwritableTextError
from ottla.wire.codec_errors import WireError as WireError

#: RECORDS are like BYTES on the wire, and decoded as a view of the frame instead of a copy.
BOOL, INT8, INT16, INT32, INT64, UINT16, UINT32 = 1, 2, 3, 4, 5, 6, 7
FLOAT64, UUID, STRING, BYTES, RECORDS, STRUCT, ARRAY = 8, 9, 10, 11, 12, 13, 14

#: The kinds by the names of Kafka's schemas (the numbers above are C constants once compiled).
_NAMES = "bool int8 int16 int32 int64 uint16 uint32 float64 uuid string bytes records struct array"
KINDS = {name: number for number, name in enumerate(_NAMES.split(), start=BOOL)}

NULL_UUID = bytes(16)
NO_LIMIT = 2**62  # no message has so many elements
_MAX_STRING_BYTES = MAX_STRING_BYTES
_MAX_ARRAY_ELEMENTS = MAX_ARRAY_ELEMENTS
_MAX_TAGGED_FIELDS = MAX_TAGGED_FIELDS

Buffer = bytes | bytearray | memoryview  # what can be read from; all of them can be sliced and measured
#: A field of so many bytes is not copied when it is written: to copy less costs less than a piece more to send.
_OWN_PIECE_BYTES = 32_768


class FieldPlan:
    """How one field looks in one version: its kind, and where it stands in the tuple."""

    def __init__(self, name: str, kind: int, index: int, nullable: bool, flexible: bool, default: object) -> None:
        self.name = name
        self.kind = kind
        self.index = index
        self.nullable = nullable
        self.flexible = flexible
        self.default = default
        #: The element of an ARRAY, and the plan of a STRUCT.
        self.element: Any = None
        self.struct: Any = None


class StructPlan:
    """How one struct looks in one version."""

    def __init__(self, cls: type[Any], name: str, flexible: bool, defaults: list[object]) -> None:
        self.cls = cls
        self.name = name
        self.flexible = flexible
        #: A value for every field of the class, in its order.
        self.defaults = defaults
        self.fields: list[FieldPlan] = []
        #: (tag, FieldPlan) in the order of tags.
        self.tagged: list[tuple[int, FieldPlan]] = []
        #: FieldPlans that this version lacks and that may not be dropped in silence.
        self.absent: list[FieldPlan] = []


class Reader:
    """A position in a buffer, with Kafka's primitive types."""

    def __init__(self, data: Buffer, pos: int, max_elements: int, max_field_bytes: int = NO_LIMIT) -> None:
        self.data = data
        #: Elements of arrays, and tagged fields, that may still come; and bytes of one field of BYTES.
        self.elements_left = max_elements
        self.max_field_bytes = max_field_bytes
        #: Of an empty memoryview there is no cast.
        self.view: Buffer = memoryview(data).cast("B") if len(data) and type(data) is not bytes else bytes(data)
        self.end = len(data)
        if pos < 0 or pos > self.end:
            raise WireError(f"offset {pos} is outside of {self.end} bytes")
        self.pos = pos

    def need(self, n: int, what: str) -> None:
        if n > self.end - self.pos:
            raise WireError(f"truncated: {what} takes {n} bytes at {self.pos}, only {self.end - self.pos} are left")

    def int8(self) -> int:
        if self.pos >= self.end:
            self.need(1, "int8")
        b = self.view[self.pos]
        self.pos += 1
        return b - 256 if b >= 128 else b

    def int16(self) -> int:
        if self.end - self.pos < 2:
            self.need(2, "int16")
        b = (self.view[self.pos] << 8) | self.view[self.pos + 1]
        self.pos += 2
        return b - 65536 if b >= 32768 else b

    def int32(self) -> int:
        u = self.uint32()
        return u - 4294967296 if u >= 2147483648 else u

    def uint32(self) -> int:
        if self.end - self.pos < 4:
            self.need(4, "int32")
        p = self.pos
        hi = (self.view[p] << 8) | self.view[p + 1]
        lo = (self.view[p + 2] << 8) | self.view[p + 3]
        self.pos += 4
        return hi * 65536 + lo

    def int64(self) -> int:
        hi = self.int32()
        lo = self.uint32()
        return hi * 4294967296 + lo

    def uvarint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        value = 0
        shift = 0
        while True:
            if self.pos >= self.end:
                self.need(1, "varint")
            b = self.view[self.pos]
            self.pos += 1
            value += (b & 0x7F) << shift
            if b < 128:
                break
            shift += 7
            if shift > 28:
                raise WireError(f"varint longer than five bytes at {self.pos}")
        if value > 4294967295:
            raise WireError(f"varint above 32 bits at {self.pos}")
        return value

    def length(self, field: FieldPlan, what: str) -> int:
        """The length before a string, bytes or array; -1 is null."""
        if field.flexible:
            n = self.uvarint() - 1
        elif field.kind == STRING:
            n = self.int16()
        else:
            n = self.int32()
        if n < 0:
            if n == -1 and field.nullable:
                return -1
            said = "null" if n == -1 else f"a negative length ({n})"
            raise WireError(f"{field.name}: {said} at {self.pos}, which this {what} cannot be")
        return n

    def field(self, plan: FieldPlan) -> Any:
        kind = plan.kind
        if kind == INT32:
            return self.int32()
        if kind == STRING:
            return self.string(plan)
        if kind == INT64:
            return self.int64()
        if kind == INT16:
            return self.int16()
        if kind == ARRAY:
            return self.array(plan)
        if kind == STRUCT:
            if plan.nullable and self.int8() < 0:
                return None
            return self.struct(plan.struct)
        if kind == INT8:
            return self.int8()
        if kind == BOOL:
            return self.int8() != 0
        if kind in (BYTES, RECORDS):
            return self.bytes_(plan)
        return self.rare(plan)

    def rare(self, plan: FieldPlan) -> Any:
        kind = plan.kind
        if kind == UUID:
            self.need(16, "uuid")
            self.pos += 16
            return bytes(self.data[self.pos - 16 : self.pos])
        if kind == UINT16:
            n = self.int16()
            return n + 65536 if n < 0 else n
        if kind == UINT32:
            return self.uint32()
        if kind == FLOAT64:
            self.need(8, "float64")
            self.pos += 8
            return struct.unpack_from(">d", self.data, self.pos - 8)[0]
        raise WireError(f"{plan.name}: no such kind {kind}")

    def string(self, plan: FieldPlan) -> str | None:
        n = self.length(plan, "string")
        if n < 0:
            return None
        self.need(n, plan.name)
        start = self.pos
        self.pos = start + n
        # As in Apache Kafka: U+FFFD for what is no UTF-8 (it is no shorter), and no more than fits into a log's record.
        text = "" if n > _MAX_STRING_BYTES else str(self.data[start : start + n], "utf-8", "replace")
        if n > _MAX_STRING_BYTES // 3 and max(n, len(text.encode())) > _MAX_STRING_BYTES:
            raise WireError(f"{plan.name}: a string of {n} bytes, at most {_MAX_STRING_BYTES} are accepted")
        return text

    def bytes_(self, plan: FieldPlan) -> bytes | memoryview | None:
        n = self.length(plan, "bytes")
        if n < 0:
            return None
        self.need(n, plan.name)
        start = self.pos
        self.pos = start + n
        if plan.kind == RECORDS:
            return memoryview(self.data)[start : start + n]
        if n > self.max_field_bytes:
            raise WireError(f"{plan.name}: {n} bytes, at most {self.max_field_bytes} are accepted")
        return bytes(self.data[start : start + n])

    def count(self, n: int, what: str) -> None:
        """`n` more elements are about to be read."""
        if n > self.elements_left:
            raise TooManyElementsError(f"{what}: {n} elements at {self.pos}, {self.elements_left} more are allowed")
        self.elements_left -= n

    def array_length(self, plan: FieldPlan) -> int:
        """How many elements are about to be read; -1 is null."""
        n = self.length(plan, "array")
        if n > self.end - self.pos or n > _MAX_ARRAY_ELEMENTS:
            raise WireError(f"{plan.name}: array of {n} in {self.end - self.pos} bytes, at most {_MAX_ARRAY_ELEMENTS}")
        self.count(max(n, 0), plan.name)
        return n

    def array(self, plan: FieldPlan) -> tuple[Any, ...] | None:
        n = self.array_length(plan)
        if n < 0:
            return None
        element, inner = plan.element, plan.element.struct
        items = []
        for _ in range(n):
            items.append(self.field(element) if inner is None else self.struct(inner))  # noqa: PERF401
        return tuple(items)

    def struct(self, plan: StructPlan) -> Any:
        values = list(plan.defaults)
        for f in plan.fields:
            values[f.index] = self.field(f)
        if plan.flexible:
            self.tags(plan, values)
        return tuple.__new__(plan.cls, values)

    def tags(self, plan: StructPlan, values: list[object]) -> None:
        count = self.uvarint()
        if count > _MAX_TAGGED_FIELDS:
            raise WireError(f"{plan.name}: {count} tagged fields at {self.pos}, more than {_MAX_TAGGED_FIELDS}")
        self.count(count, plan.name)
        for _ in range(count):
            tag = self.uvarint()
            size = self.uvarint()
            self.need(size, "tagged field")
            after = self.pos + size
            for known, f in plan.tagged:
                if known == tag:
                    values[f.index] = self.field(f)
                    if self.pos != after:
                        raise WireError(f"{f.name}: a tagged field of {size} bytes ends at {self.pos}, not {after}")
            self.pos = after


class Writer:
    """A growing buffer, with Kafka's primitive types."""

    def __init__(self, capacity: int) -> None:
        self.data = self.view = bytearray(capacity)
        self.capacity = capacity
        self.pos = 0
        #: What comes before `data`. A large field is not copied: it is a piece of its own.
        self.pieces: list[Buffer] = []

    def room(self, n: int) -> None:
        """Make sure that `n` more bytes fit."""
        if self.pos + n > self.capacity:
            self.grow(max(self.capacity * 2, self.pos + n))

    def grow(self, capacity: int) -> None:
        """A function of its own: compiled, one that sets a view is slow, also where it does not come to that."""
        self.data = self.view = self.data[: self.pos] + bytes(capacity - self.pos)
        self.capacity = capacity

    def finish(self) -> bytes:
        """What was written."""
        return b"".join(self.finish_pieces()) if self.pieces else bytes(self.data[: self.pos])

    def finish_pieces(self) -> list[Buffer]:
        """What was written, in the order of the pieces."""
        return [*self.pieces, bytes(self.data[: self.pos])]

    def int8(self, v: int) -> None:
        self.room(1)
        self.view[self.pos] = v & 0xFF
        self.pos += 1

    def int16(self, v: int) -> None:
        self.room(2)
        self.view[self.pos] = (v >> 8) & 0xFF
        self.view[self.pos + 1] = v & 0xFF
        self.pos += 2

    def int32(self, v: int) -> None:
        self.room(4)
        p = self.pos
        self.view[p] = (v >> 24) & 0xFF
        self.view[p + 1] = (v >> 16) & 0xFF
        self.view[p + 2] = (v >> 8) & 0xFF
        self.view[p + 3] = v & 0xFF
        self.pos += 4

    def int64(self, v: int) -> None:
        self.int32(v >> 32)
        self.int32(v & 0xFFFFFFFF)

    def uvarint(self, v: int) -> None:
        self.room(5)
        while v >= 128:
            self.view[self.pos] = (v & 0x7F) | 0x80
            self.pos += 1
            v >>= 7
        self.view[self.pos] = v
        self.pos += 1

    def raw(self, data: Buffer, n: int) -> None:
        if n >= _OWN_PIECE_BYTES:
            self.pieces += (bytes(self.data[: self.pos]), data)
            self.pos = 0
        else:
            self.room(n)
            self.data[self.pos : self.pos + n] = data
            self.pos += n

    def length(self, plan: FieldPlan, n: int) -> None:
        if n < 0 and not plan.nullable:
            raise WireError(f"{plan.name}: must not be null in this version")
        if n > _MAX_STRING_BYTES and plan.kind == STRING:
            raise WireError(f"{plan.name}: a string of {n} bytes, at most {_MAX_STRING_BYTES} fit")
        if plan.flexible:
            self.uvarint(n + 1)
        elif plan.kind == STRING:
            self.int16(n)
        else:
            self.int32(n)

    def integer(self, plan: FieldPlan, value: object) -> None:
        kind = plan.kind
        if kind == INT32:
            low, high = -2147483648, 2147483647
        elif kind == INT16:
            low, high = -32768, 32767
        elif kind == INT8:
            low, high = -128, 127
        elif kind == UINT16:
            low, high = 0, 65535
        else:
            low, high = 0, 4294967295
        if not isinstance(value, int):
            raise WireError(f"{plan.name}: a whole number is needed, got {value!r}")
        if value < low or value > high:
            raise WireError(f"{plan.name}: {value} is outside of {low}..{high}")
        if kind in (INT32, UINT32):
            self.int32(value)
        elif kind == INT8:
            self.int8(value)
        else:
            self.int16(value)

    def long(self, plan: FieldPlan, value: object) -> None:
        if not isinstance(value, int):
            raise WireError(f"{plan.name}: a whole number is needed, got {value!r}")
        if value < -9223372036854775808 or value > 9223372036854775807:
            raise WireError(f"{plan.name}: {value} is outside of 64 bits")
        self.int64(value)

    def field(self, plan: FieldPlan, value: Any) -> None:
        kind = plan.kind
        if kind == STRING:
            if value is None:
                self.length(plan, -1)
            elif isinstance(value, str):
                try:
                    data = value.encode("utf-8")
                except UnicodeEncodeError:
                    raise UnwritableTextError(f"{plan.name}: {value!r} is no text that UTF-8 can write") from None
                self.length(plan, len(data))
                self.raw(data, len(data))
            else:
                raise WireError(f"{plan.name}: a string is needed, got {value!r}")
        elif kind == INT64:
            self.long(plan, value)
        elif kind == ARRAY:
            self.array(plan, value)
        elif kind == STRUCT:
            if plan.nullable:
                self.int8(-1 if value is None else 1)
            if value is not None:
                self.struct(plan.struct, value)
            elif not plan.nullable:
                raise WireError(f"{plan.name}: must not be null in this version")
        elif kind == BOOL:
            self.int8(1 if value else 0)
        elif kind in (BYTES, RECORDS):
            self.length(plan, -1 if value is None else len(value))
            if value is not None:
                self.raw(value, len(value))
        elif kind == UUID:
            if len(value) != 16:
                raise WireError(f"{plan.name}: a uuid is 16 bytes, got {len(value)}")
            self.raw(value, 16)
        elif kind == FLOAT64:
            self.raw(struct.pack(">d", value), 8)
        else:
            self.integer(plan, value)

    def array(self, plan: FieldPlan, value: Any) -> None:
        self.length(plan, -1 if value is None else len(value))
        element = plan.element
        if value is None:
            pass
        elif element.kind == STRUCT:
            for item in value:
                self.struct(element.struct, item)
        else:
            for item in value:
                self.field(element, item)

    def struct(self, plan: StructPlan, value: Any) -> None:
        if type(value) is not plan.cls:
            raise WireError(f"a {plan.name} is needed, got {value!r:.200}")
        for f in plan.fields:
            self.field(f, value[f.index])
        self.end(plan, value)

    def end(self, plan: StructPlan, value: Any) -> None:
        for f in plan.absent:
            if value[f.index] != f.default:
                raise WireError(f"{plan.name}.{f.name}: {value[f.index]!r:.200} cannot be said in this version")
        if plan.tagged:
            self.tags(plan, value)
        elif plan.flexible:
            self.int8(0)

    def tags(self, plan: StructPlan, value: Any) -> None:
        said = [(tag, f) for tag, f in plan.tagged if value[f.index] != f.default]
        self.uvarint(len(said))
        for tag, f in said:
            inner = Writer(64)
            inner.field(f, value[f.index])
            packed = inner.finish()
            self.uvarint(tag)
            self.uvarint(len(packed))
            self.raw(packed, len(packed))


def read_struct(
    plan: StructPlan, data: Buffer, pos: int, max_elements: int = NO_LIMIT, max_field_bytes: int = NO_LIMIT
) -> tuple[Any, int]:
    """Decode one struct from `data` at `pos`; the struct and where it ends. See `Reader` for the bounds."""
    reader = Reader(data, pos, max_elements, max_field_bytes)
    return reader.struct(plan), reader.pos


def write_struct(plan: StructPlan, value: object) -> bytes:
    """Encode one struct."""
    return b"".join(write_pieces(plan, value))


def write_pieces(plan: StructPlan, value: object) -> list[Buffer]:
    """Encode one struct; its large fields are not copied, but come as they are, between what is around them."""
    writer = Writer(256)
    writer.struct(plan, value)
    return writer.finish_pieces()


def write_field(plan: FieldPlan, value: object) -> list[Buffer]:
    """Encode one field of a struct, in pieces as `write_pieces`."""
    writer = Writer(64)
    writer.field(plan, value)
    return writer.finish_pieces()


def write_length(plan: FieldPlan, n: int) -> bytes:
    """Encode how many elements an array has, or how many bytes a string."""
    writer = Writer(8)
    writer.length(plan, n)
    return writer.finish()


def write_end(plan: StructPlan, value: object) -> bytes:
    """What follows a struct's fields: its tagged ones."""
    writer = Writer(64)
    writer.end(plan, value)
    return writer.finish()

# Types of record_writer.py for Cython; the .py runs without this file.
cimport cython
from ottla.wire.record_codec cimport address_of, move_bytes, start_of

cdef bint COMPILED
cdef long long _TIMESTAMP_END_MS, _MAX_INT32, _MAX_BODY_BYTES
cdef Py_ssize_t _FIRST_CAPACITY_BYTES, _HEAD_BYTES, _SPARE_BYTES
cdef bytes _NO_PACKED_HEADERS
cdef tuple _SHORT_VARINTS

@cython.final
cdef class _BinaryView:
    cdef const int[::1] offsets
    cdef const unsigned char[::1] data, valid
    cdef const unsigned char *raw
    cdef bint present, has_nulls
    cdef Py_ssize_t valid_at
    @cython.locals(bit=Py_ssize_t)
    cdef Py_ssize_t size(self, Py_ssize_t row) noexcept

cdef class RecordWriter:
    cdef unsigned char[::1] view
    cdef object memory, spare
    cdef unsigned char *to
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t limit_bytes, used, count
    cdef readonly long long last_offset_delta, base_timestamp_ms, max_timestamp_ms
    @cython.locals(delta=cython.longlong)
    cpdef long long try_append(self, long long timestamp_ms, object key, object value, object headers) except *
    @cython.locals(packed=bytes, key_size=Py_ssize_t, value_size=Py_ssize_t)
    cpdef bint append_at(self, long long offset_delta, long long timestamp_ms, object key, object value, object headers) except *
    @cython.locals(delta=cython.longlong, size=Py_ssize_t, whole=Py_ssize_t)
    cdef bint begin_record(self, long long offset_delta, long long timestamp_ms, Py_ssize_t key_size, Py_ssize_t value_size, Py_ssize_t headers_size) except *
    @cython.locals(key_view=_BinaryView, value_view=_BinaryView, packed=bytes, row=Py_ssize_t, key_size=Py_ssize_t, value_size=Py_ssize_t)
    cpdef Py_ssize_t append_rows(self, Py_ssize_t start, Py_ssize_t stop, const long long[::1] timestamps, tuple keys, tuple values, list headers) except -1
    @cython.locals(size=Py_ssize_t)
    cdef object new_memory(self, Py_ssize_t capacity)
    cdef int use(self, object memory) except -1
    @cython.locals(start=Py_ssize_t)
    cdef int put_field(self, _BinaryView column, Py_ssize_t row, Py_ssize_t size) except -1
    @cython.locals(raw="const unsigned char *")
    cdef int put_bytes(self, bytes source, Py_ssize_t size) except -1
    cdef int put_slice(self, object source, Py_ssize_t start, Py_ssize_t size) except -1
    @cython.locals(rest=cython.ulonglong, pos=Py_ssize_t)
    cdef int put_varint(self, long long value) except -1
    @cython.locals(end=Py_ssize_t)
    cdef int grow(self, Py_ssize_t needed) except -1
    cpdef object body(self)
    cpdef object close(self)
    cpdef object with_head(self, bytes head)

cdef Py_ssize_t _size(object field) except -2
@cython.locals(rest=cython.ulonglong, size=Py_ssize_t)
cpdef Py_ssize_t varint_size(long long value)
@cython.locals(parts=list, count=Py_ssize_t, raw=bytes)
cpdef bytes pack_headers(object headers)
@cython.locals(rest=Py_ssize_t, out=bytearray)
cdef bytes _packed_varint(Py_ssize_t value)

# Types of record_codec.py for Cython; the .py runs without this file.
cimport cython

cdef bint COMPILED
cdef int SMALLEST_RECORD_BYTES, _VARINT_BYTES, _VARLONG_BYTES
cdef long long _MAX_INT32, _MAX_INT64, _MIN_INT64
cdef tuple _NO_HEADERS

@cython.locals(i=Py_ssize_t)
cdef void _copy(unsigned char[::1] target, Py_ssize_t at, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t size) noexcept
@cython.final
cdef class RecordCursor:
    cdef const unsigned char[::1] data
    cdef const unsigned char *raw
    cdef bytes owner
    cdef Py_ssize_t at, end, limit, key_at, value_at, headers_at
    cdef Py_ssize_t key_size, value_size, header_count
    cdef readonly int count
    cdef readonly Py_ssize_t body_bytes
    cdef readonly long long offset, timestamp_ms
    cdef readonly int taken
    cdef bint has_append_time
    cdef long long base_offset, last_offset_delta, base_timestamp_ms, append_time_ms
    cdef str where(self)
    @cython.locals(size=Py_ssize_t, delta=cython.longlong)
    cdef int advance(self) except -1
    cdef int finish(self) except -1
    @cython.locals(base=cython.longlong)
    cdef int set_timestamp(self, long long delta) except -1
    @cython.locals(pos=Py_ssize_t, byte=int, bits=int)
    cdef int varint(self) except? -2
    @cython.locals(pos=Py_ssize_t, byte=int, bits=int)
    cdef long long varlong(self) except *
    @cython.locals(pos=Py_ssize_t, byte=int, value=cython.ulonglong, bits=cython.ulonglong, half=cython.longlong, sign=cython.longlong, shift=int, i=int)
    cdef long long long_varint(self, int max_bytes, int last_max) except *
    cdef int skip(self, Py_ssize_t size) except -1
    @cython.locals(count=Py_ssize_t, size=Py_ssize_t, _=Py_ssize_t)
    cdef int skip_headers(self) except -1
    cdef bytes key(self)
    cdef bytes value(self)
    @cython.locals(after=Py_ssize_t, size=Py_ssize_t, found=list, name=bytes, _=Py_ssize_t)
    cdef tuple headers(self)

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object record)

cdef void _untrack(object record)

@cython.locals(records=list, fields=tuple, _=Py_ssize_t)
cpdef list read_records(RecordCursor cursor, object record_class, long long start_offset)
@cython.locals(records=list, fields=tuple, _=Py_ssize_t)
cpdef list read_consumer_records(RecordCursor cursor, object record_class, object topic, object partition, object timestamp_type, object leader_epoch, long long start_offset)

@cython.locals(without_key=int, out_of_time=int, index=int, end=int, time=cython.longlong, lacks_key=cython.bint)
cpdef tuple find_faults(RecordCursor cursor, int at_most, bint needs_key, long long low_ms, long long high_ms, bint every, list found, Py_ssize_t max_found)

@cython.final
cdef class ColumnFiller:
    cdef long long[::1] offsets, timestamps
    cdef int[::1] timestamp_types, key_offsets, value_offsets, header_offsets
    cdef unsigned char[::1] key_data, key_valid, value_data, value_valid
    cdef bint with_headers
    cdef readonly Py_ssize_t rows, key_bytes, value_bytes, key_nulls, value_nulls
    cdef readonly list header_keys, header_values
    @cython.locals(_=Py_ssize_t)
    cpdef int fill(self, RecordCursor cursor, long long start_offset, long long end_offset, int timestamp_type) except -1
    @cython.locals(row=Py_ssize_t, bit=int)
    cdef int add(self, RecordCursor cursor, int timestamp_type) except -1
    cdef int add_headers(self, RecordCursor cursor, Py_ssize_t row) except -1

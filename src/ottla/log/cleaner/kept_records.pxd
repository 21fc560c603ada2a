# Types of kept_records.py for Cython; the .py runs without this file.
cimport cython
from ottla.log.cleaner.offset_map cimport OffsetMap
from ottla.wire.record_codec cimport RecordCursor, move_bytes
from ottla.wire.record_writer cimport RecordWriter, pack_headers, varint_size

cdef bint COMPILED
cdef Py_ssize_t _NO_LIMIT_BYTES, _FIRST_BYTES
cdef bytes _NO_HEADERS

@cython.final
cdef class Marks:
    cdef unsigned char[::1] stay
    cdef readonly Py_ssize_t kept
    cdef readonly bint has_tombstone
    cdef readonly long long first_ms, earliest_ms, latest_ms
    @cython.locals(end=int, index=Py_ssize_t, time=cython.longlong)
    cpdef bint take(self, RecordCursor cursor, OffsetMap offsets, int at_most, bint drops_tombstones) except -1

@cython.final
cdef class KeptRecords(RecordWriter):
    @cython.locals(end=int, index=Py_ssize_t)
    cpdef object take(self, RecordCursor cursor, Marks marks, int at_most, Py_ssize_t most_bytes)
    @cython.locals(headers=bytes, time_delta=cython.longlong, offset_delta=cython.longlong, size=Py_ssize_t, needed=Py_ssize_t)
    cdef int add(self, RecordCursor cursor) except -1
    cdef int copy(self, RecordCursor cursor, Py_ssize_t at, Py_ssize_t size) except -1
    cdef int copy_slice(self, RecordCursor cursor, Py_ssize_t at, Py_ssize_t size) except -1

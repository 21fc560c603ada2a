# Types of record_codec.py for Cython; the .py runs without this file.
cimport cython
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int64_t
from libc.string cimport memcpy

cdef bint COMPILED
cdef int SMALLEST_RECORD_BYTES, _VARINT_BYTES, _VARLONG_BYTES
cdef long long _MAX_INT32, _MAX_INT64, _MIN_INT64
cdef tuple _NO_HEADERS

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object record)
    object PyType_GenericAlloc(PyTypeObject *cls, Py_ssize_t items)

cdef inline const unsigned char *address_of(const unsigned char[::1] view):
    return &view[0] if view.shape[0] > 0 else NULL

cdef inline unsigned char *start_of(unsigned char[::1] view):
    return &view[0] if view.shape[0] > 0 else NULL

cdef inline void move_bytes(unsigned char *target, Py_ssize_t at, const unsigned char *source, Py_ssize_t start, Py_ssize_t size):
    if size > 0:
        memcpy(target + at, source + start, size)

cdef inline void set_item(object record, Py_ssize_t index, object item):
    Py_INCREF(item)
    PyTuple_SET_ITEM(record, index, item)

# A named tuple, filled where it lies, without another tuple of the same fields. And without Python's garbage collector,
# which looks at each subclass of tuple again and again: no cycle can go through numbers, texts and bytes, for ever,
# because they do not change.
cdef inline object new_consumer_record(object cls, object topic, object partition, object offset, object timestamp_ms,
        object timestamp_type, object key, object value, object headers, object leader_epoch):
    record = PyType_GenericAlloc(<PyTypeObject *>cls, 9)
    PyObject_GC_UnTrack(record)
    set_item(record, 0, topic)
    set_item(record, 1, partition)
    set_item(record, 2, offset)
    set_item(record, 3, timestamp_ms)
    set_item(record, 4, timestamp_type)
    set_item(record, 5, key)
    set_item(record, 6, value)
    set_item(record, 7, headers)
    set_item(record, 8, leader_epoch)
    return record

@cython.final
cdef class RecordCursor:
    cdef const unsigned char[::1] data
    cdef const unsigned char *raw
    cdef bytes owner
    cdef Py_ssize_t start, at, end, limit, key_at, value_at, headers_at
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
    cpdef int check(self) except -1
    @cython.locals(end=int)
    cpdef bint check_some(self, int at_most) except -1
    cdef int up_to(self, int at_most) noexcept
    cdef bint rewound(self) except -1
    cpdef int rewind(self) except -1
    cdef int finish(self) except -1
    @cython.locals(base=cython.longlong)
    cdef inline int set_timestamp(self, long long delta) except -1
    @cython.locals(pos=Py_ssize_t, byte=int, bits=int)
    cdef inline int varint(self) except? -2
    @cython.locals(pos=Py_ssize_t, byte=int, bits=int)
    cdef inline int64_t varlong(self) except? -2
    @cython.locals(pos=Py_ssize_t, byte=int, value=cython.ulonglong, bits=cython.ulonglong, half=cython.longlong, sign=cython.longlong, shift=int, i=int)
    cdef int64_t long_varint(self, int max_bytes, int last_max) except? -2
    cdef inline int skip(self, Py_ssize_t size) except -1
    @cython.locals(count=Py_ssize_t, size=Py_ssize_t, _=Py_ssize_t)
    cdef int skip_headers(self) except -1
    cdef bytes key(self)
    cdef bytes value(self)
    @cython.locals(after=Py_ssize_t, size=Py_ssize_t, found=list, name=bytes, _=Py_ssize_t)
    cdef tuple headers(self)

@cython.locals(records=list, fields=tuple, _=Py_ssize_t)
cpdef list read_records(RecordCursor cursor, object record_class, long long start_offset)
@cython.locals(records=list, wanted=Py_ssize_t, time=cython.longlong, timestamp_ms=object, offset=object, key=object, value=object, headers=object)
cpdef list read_consumer_records(RecordCursor cursor, object record_class, object topic, object partition, object timestamp_type, object leader_epoch, long long start_offset, Py_ssize_t limit)

@cython.locals(without_key=int, out_of_time=int, index=int, end=int, time=cython.longlong, lacks_key=cython.bint)
cpdef tuple find_faults(RecordCursor cursor, int at_most, bint needs_key, long long low_ms, long long high_ms, bint every, list found, Py_ssize_t max_found)

@cython.locals(end=int)
cpdef bint find_time(RecordCursor cursor, int at_most, long long timestamp_ms, long long start_offset) except -1
@cython.locals(end=int)
cpdef tuple find_newest(RecordCursor cursor, int at_most, long long start_offset, long long newest_ms, long long newest_offset)

@cython.final
cdef class ColumnFiller:
    cdef long long[::1] offsets, timestamps
    cdef int[::1] timestamp_types, key_offsets, value_offsets, header_offsets
    cdef unsigned char[::1] key_data, key_valid, value_data, value_valid
    cdef unsigned char *keys_to
    cdef unsigned char *values_to
    cdef bint with_headers
    cdef readonly Py_ssize_t rows, key_bytes, value_bytes, key_nulls, value_nulls
    cdef readonly list header_keys, header_values
    @cython.locals(_=Py_ssize_t)
    cpdef int fill(self, RecordCursor cursor, long long start_offset, long long end_offset, int timestamp_type) except -1
    @cython.locals(row=Py_ssize_t, bit=int)
    cdef int add(self, RecordCursor cursor, int timestamp_type) except -1
    cdef int copy_key(self, RecordCursor cursor) except -1
    cdef int copy_value(self, RecordCursor cursor) except -1
    cdef int add_headers(self, RecordCursor cursor, Py_ssize_t row) except -1

# Types of offset_map.py for Cython; the .py runs without this file.
cimport cython
from libc.stdint cimport int64_t

cdef int _HASH_BYTES
cdef object _HALVES

@cython.final
cdef class OffsetMap:
    cdef unsigned long long[::1] _table
    cdef unsigned long long _slots
    cdef readonly Py_ssize_t max_keys, keys
    cdef public long long latest_offset
    @cython.locals(offset=cython.longlong)
    cpdef bint put_all(self, list rows) except -1
    @cython.locals(offset=cython.longlong, newest=list, stays=cython.bint)
    cpdef list are_newest(self, list rows)
    @cython.locals(high=cython.ulonglong, low=cython.ulonglong, at=Py_ssize_t)
    cpdef object put(self, bytes key, long long offset)
    @cython.locals(high=cython.ulonglong, low=cython.ulonglong, at=Py_ssize_t)
    cpdef int64_t get(self, bytes key) except? -2
    @cython.locals(slots=cython.ulonglong, place=cython.ulonglong, step=cython.ulonglong, jumps=cython.ulonglong, most=cython.ulonglong, attempt=cython.ulonglong, at=Py_ssize_t)
    cdef Py_ssize_t _place(self, unsigned long long high, unsigned long long low)

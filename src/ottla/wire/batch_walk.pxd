# Types of batch_walk.py for Cython; the .py runs without this file.
cimport cython

cdef Py_ssize_t _HEADER_BYTES, _OVERHEAD_BYTES, _AT_MAGIC, _AT_LENGTH, _AT_LAST_DELTA
cdef int _MAGIC
cdef long long _LEAST_LENGTH, _MAX_INT32, _MAX_INT64

@cython.locals(pos=Py_ssize_t, count=Py_ssize_t, end=Py_ssize_t, room=Py_ssize_t, behind=cython.longlong, length=cython.longlong, delta=cython.longlong, base=cython.longlong)
cpdef tuple walk(const unsigned char[::1] data, long long[::1] found)

@cython.locals(value=cython.ulonglong, i=Py_ssize_t)
cpdef long long number(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size) noexcept

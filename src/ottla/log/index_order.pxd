# Types of index_order.py for Cython; the .py runs without this file.
cimport cython

@cython.locals(before=cython.longlong, value=cython.longlong, start=Py_ssize_t, end=Py_ssize_t)
cpdef bint ascend(const unsigned char[::1] entries, Py_ssize_t entry_bytes, Py_ssize_t at, Py_ssize_t size, bint strictly) except -1

@cython.locals(value=cython.longlong, i=Py_ssize_t)
cpdef long long number(const unsigned char[::1] entries, Py_ssize_t at, Py_ssize_t size) noexcept

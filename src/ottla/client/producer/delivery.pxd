# Types of delivery.py for Cython; the .py runs without this file.
cimport cython

@cython.final
cdef class Delivery:
    cdef object _outcome
    cdef Py_ssize_t _index
    cdef long long _timestamp_ms
    cpdef object _metadata(self)

@cython.locals(made=Delivery)
cpdef Delivery delivery_of(object outcome, Py_ssize_t index, long long timestamp_ms)

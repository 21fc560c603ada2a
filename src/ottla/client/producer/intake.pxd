# Types of intake.py for Cython; the .py runs without this file.
cimport cython

from ottla.client.producer.delivery cimport Delivery, delivery_of
from ottla.wire.hashing cimport partition_for_key
from ottla.wire.record_writer cimport RecordWriter

cdef tuple _NO_RECORD

@cython.final
cdef class Intake:
    cdef dict topics
    cdef object lock, time_ns
    cdef bint hashes_keys
    @cython.locals(time=cython.longlong)
    cpdef object take(self, object topic, object value, object key, object partition, object timestamp_ms, object headers, object on_delivery)
    @cython.locals(count=Py_ssize_t, number=Py_ssize_t, builder=RecordWriter, index=cython.longlong, callbacks=list)
    cdef object put(self, object topic, bytes value, bytes key, object partition, long long timestamp_ms, object headers, object on_delivery)

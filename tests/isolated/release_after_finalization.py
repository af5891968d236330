"""A C library releases memory owned by Python during or after interpreter finalization."""

import sys

import c_library
import common

helper = c_library.Lifetime(sys.argv[1])
when, kind = sys.argv[2:]

array = common.ad.array(common.Owner())
if kind == "array":
    struct = common.moved(array.__arrow_c_device_array__()[1], "arrow_device_array").array
elif kind == "schema":
    struct = common.moved(array.__arrow_c_schema__(), "arrow_schema")
elif kind == "stream":
    struct = common.moved(array.__arrow_c_device_stream__(), "arrow_device_array_stream")
elif kind == "foreign":
    imported = common.ad.array(array.__arrow_c_device_array__())
    struct = common.moved(imported.__arrow_c_array__()[1], "arrow_array")
    del imported
release, pointer = struct.release, common.ac.address(struct)
del array

if when == "at exit":
    helper.at_exit(release, pointer, 0)
elif when == "thread at exit":
    helper.at_exit(release, pointer, 1)
else:
    helper.later(release, pointer, int(when))
common.end()

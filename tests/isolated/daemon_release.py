"""Daemon threads export, import and release during interpreter finalization."""

import sys
import threading
import time

import c_library
import common

helper = c_library.Lifetime(sys.argv[1])
mode = sys.argv[2]


def work():
    while True:
        array = common.ad.array(common.Owner())
        schema, device = array.__arrow_c_device_array__()
        structs = [
            common.moved(schema, "arrow_schema"),
            common.moved(device, "arrow_device_array").array,
        ]
        del array, schema, device
        for struct in structs:
            helper.call(mode, struct.release, common.ac.address(struct))


for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
common.end()

"""A child forked after use imports, exports, releases and exits; so does its parent."""

import gc
import os
import sys
import warnings

import common

warnings.simplefilter("ignore")  # 3.12 warns about a fork in a process with threads
way = sys.argv[1]
alive = common.everything()
tree = common.ac.batch(2)
batch = common.ad.array(common.ac.Host(tree))
capsules = batch.__arrow_c_device_array__()

for _ in range(3):
    child = os.fork()
    if child == 0:
        again = common.ad.array(capsules)
        assert len(again) == 3 and len(common.ad.array(common.Owner())) == 4
        del again, batch, capsules
        gc.collect()
        assert tree.released == (1, 1)
        alive.clear()
        common.everything()
        if way == "os._exit":
            os._exit(7)
        sys.exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
    assert tree.released == (0, 0)

del batch, capsules
assert tree.released == (1, 1)
common.everything()
common.end()

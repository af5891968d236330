"""Exits with all kinds of objects alive. Arguments: the place that holds them, the way to exit."""

import atexit
import builtins
import os
import sys
import threading

import common

place, way = sys.argv[1:]
alive = common.everything()

if place == "cycle":
    alive["self"] = alive
    alive = None
elif place == "builtins":
    builtins.arrowdev_alive = alive
elif place == "thread":
    ready = threading.Event()

    def hold(things):
        ready.set()
        threading.Event().wait()

    threading.Thread(target=hold, args=(common.everything(),), daemon=True).start()
    ready.wait()
elif place == "destructor":

    class Late:
        def __init__(self):
            self.things = common.everything()
            self.ad = common.ad

        def __del__(self):
            # Modules may be partly cleared by now.
            try:
                self.ad.array(self.things["array"].__arrow_c_device_array__())[1:]
            except Exception:
                pass
            self.things.clear()

    late = Late()
    builtins.arrowdev_late = Late()
elif place == "atexit":
    atexit.register(alive.clear)
    atexit.register(common.everything)
elif place == "modules":
    sys.modules["arrowdev._core"].held = alive
    common.ad.held = alive

common.end()
if way == "sys.exit":
    sys.exit(0)
elif way == "os._exit":
    os._exit(0)
elif way == "exception":
    raise RuntimeError("as asked for")
elif way == "import":

    class Producer:
        def __arrow_c_array__(self, requested_schema=None):
            sys.exit(0)

    common.ad.record_batch(
        {"a": common.Owner(), "b": common.everything()["array"], "c": Producer()}
    )
elif way == "release":
    tree = common.ac.numbers()
    tree.array.on_release = common.everything
    kept = common.ad.array(common.ac.Host(tree))

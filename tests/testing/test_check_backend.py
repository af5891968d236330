"""check_backend: the runtimes that are there keep the contract, and each fault is found."""

import pathlib
import re
import sys

import pytest
import registered
from registered import PLAIN, TYPE

import arrowdev as ad
from arrowdev.testing import ConformanceError, _check_backend, _report, check_backend
from arrowdev.testing._rules import BACKEND_RULES

# What needs two devices, kernels, events, or a stream that can be held.
HELD = {"backend.stream"}
SHARE = {"backend.share"}
ORDER = {"backend.event", "backend.wait", *HELD}
# In another process.
SOFTWARE_DEVICE = """
from arrowdev.testing import software_device
software_device().__enter__()
print("what a setup prints does not matter" * 10_000)
text = setup = out = None
"""


def test_host():
    report = check_backend(ad.DeviceType.CPU)
    assert set(BACKEND_RULES) == report.held | ORDER
    assert set(report.untried) == ORDER


def test_software_device():
    """In a process of its own: a block with more devices, earlier, would leave them there."""
    registered.run(f"""if True:
        from arrowdev import DeviceType
        from arrowdev.testing import check_backend, software_device
        from arrowdev.testing._rules import BACKEND_RULES
        with software_device(devices=2) as device:
            report = check_backend(
                DeviceType.EXT_DEV,
                stream=lambda on: device.queue(on.id),
                hold=lambda queue: queue.held(),
                setup={SOFTWARE_DEVICE!r},
            )
        assert report.held == set(BACKEND_RULES) and not report.untried
        """)


def test_backend_of_the_docs():
    registered.register()
    report = check_backend(TYPE, stream=registered.new_stream, hold=registered.hold)
    assert set(report.untried) == SHARE
    assert report.held == set(BACKEND_RULES) - SHARE


def test_runtime_without_events():
    registered.register_plain()
    registered.failing().set_devices(1)
    report = check_backend(PLAIN)
    assert set(report.untried) == HELD | SHARE | {"backend.kernels"}
    assert report.held == set(BACKEND_RULES) - set(report.untried)


def test_opencl():
    if not any(device.type == ad.DeviceType.OPENCL for device in ad.devices()):
        pytest.skip("could not import 'pyopencl': there is no OpenCL device")
    report = check_backend(ad.DeviceType.OPENCL)
    assert set(report.untried) <= HELD | SHARE
    assert report.held >= set(BACKEND_RULES) - HELD - SHARE


FAULTS = {rule: rule.partition(".")[2] for rule in BACKEND_RULES if rule not in SHARE}
FAULTS["backend.fork"] = "fork_hangs"


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "fault"), [*FAULTS.items(), ("backend.fork", "fork_aborts")])
def test_fault_is_found(rule, fault):
    """In a process of its own, which the fault may harm."""
    said = registered.run(
        f"""if True:
        import registered
        from arrowdev import register_backend
        from arrowdev.testing import ConformanceError, _check_backend, check_backend
        _check_backend.SECONDS = 3.0
        table = registered.example().backend(28)
        register_backend(registered.failing().broken(table, 28, "{fault}"))
        try:
            check_backend(28, stream=registered.new_stream, hold=registered.hold)
        except ConformanceError as error:
            print(error)
        """
    ).stdout
    if rule == "backend.release":  # what is freed too early may break other rules first
        assert "broken: backend." in said
    else:
        assert f"broken: {rule}: {BACKEND_RULES[rule].text}" in said


SOUND_IN_ANOTHER_PROCESS = """
import arrowdev, registered
from arrowdev.testing import _device
_device.start(2)
arrowdev.register_backend(registered.failing().broken(_device.backend(), 28, ""))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("share_bytes", "another process found other bytes"),
        ("share_event", "another process did not wait for an event"),
        ("share_nothing", "another process: ExchangeError: "),
        ("", None),
    ],
)
def test_fault_for_another_process_is_found(fault, text):
    """The software device serves another type, and is sound in the process that attaches."""
    said = registered.run(
        f"""if True:
        import registered
        from arrowdev import register_backend
        from arrowdev.testing import ConformanceError, _device, check_backend, software_device
        queues = {{}}

        def new_stream(on):
            queue = device.queue(on.id)
            queues[queue.handle] = queue
            return queue.handle

        with software_device() as device:
            register_backend(registered.failing().broken(_device.backend(), 28, "{fault}"))
            try:
                report = check_backend(
                    28,
                    stream=new_stream,
                    hold=lambda handle: queues[handle].held(),
                    setup={SOUND_IN_ANOTHER_PROCESS!r},
                )
                print(report.untried, "backend.share" in report.held)
            except ConformanceError as error:
                print(error)
        """
    ).stdout
    if text is None:
        assert said == "{} True\n"
    else:
        assert "broken: backend.share" in said and text in said


def share_on_the_host(setup):
    report = _report.Report("the host", rules=BACKEND_RULES)
    world = _check_backend._World([ad.device("cpu")], None, None, setup)
    _check_backend._run(report, "backend.share", _check_backend._check_share, world)
    return report


@pytest.mark.parametrize(
    "setup",
    [
        "",
        "print('hello', flush=True)",
        "import sys; sys.stderr.write('x' * 200_000)",
        "text = setup = json = os = sys = out = bytes = None",
        "import atexit; atexit.register(print, 'bye')",
        "import subprocess; subprocess.Popen(['sleep', '30'])",
    ],
)
def test_setup_may_do_anything(setup):
    assert share_on_the_host(setup).held == SHARE


@pytest.mark.parametrize(
    ("setup", "text"),
    [
        ("raise ValueError('never\\n \\n')", "another process: ValueError: never"),
        ("raise SystemExit", "another process: it ended with exit code 0"),
        ("import os; os._exit(5)", "another process: it ended with exit code 5"),
        ("import os; os.abort()", "another process: it ended with exit code -6"),
        ("import time; time.sleep(100)", "has not attached after 1 seconds; does setup= end?"),
    ],
)
def test_setup_that_fails_is_told(setup, text, monkeypatch):
    monkeypatch.setattr(_check_backend, "SECONDS", 1.0 if "sleep" in setup else 20.0)
    report = share_on_the_host(setup)
    assert text in report.findings["backend.share"].what


@pytest.mark.parametrize("path", [[pathlib.Path("/nowhere")], [b"x"], [None]])
def test_odd_paths_are_left_out(path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, *path])
    assert share_on_the_host("").held == SHARE


def test_python_that_is_not_known(monkeypatch):
    monkeypatch.setattr(sys, "executable", None)
    assert share_on_the_host("").untried == {"backend.share": "sys.executable is not known"}


def test_another_process_needs_the_backend():
    """In a process of its own: it forks, and the libraries of other tests have threads."""
    said = registered.run("""if True:
        from arrowdev import DeviceType
        from arrowdev.testing import check_backend, software_device
        with software_device(devices=2):
            report = check_backend(DeviceType.EXT_DEV)
        print(report.untried["backend.share"])
        """).stdout
    assert said == "another process has no runtime for the type; pass setup=\n"


def test_rule_that_is_not_there():
    with pytest.raises(ValueError, match=r"no such rules: backend\.nothing"):
        check_backend(ad.DeviceType.CPU, ignore=["backend.nothing"])


def test_type_without_a_runtime():
    with pytest.raises(ad.ExchangeError, match="no runtime for it"):
        check_backend(27)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"device_type": "cpu"}, TypeError, "device_type must be an int, not 'cpu'"),
        ({"device_type": 1.5}, TypeError, "device_type must be an int"),
        ({"device_type": True}, TypeError, "device_type must be an int"),
        ({"device_type": None}, TypeError, "device_type must be an int"),
        ({"device_type": 0}, ValueError, "from 1 to 2147483647, not 0"),
        ({"device_type": 2**40}, ValueError, "from 1 to 2147483647"),
        ({"stream": 3}, TypeError, "stream must be callable, not int"),
        ({"hold": "x"}, TypeError, "hold must be callable, not str"),
        ({"setup": print}, TypeError, "setup must be a str, not builtin_function_or_method"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    """They are no fault of the backend."""
    with pytest.raises(error, match=text):
        check_backend(**{"device_type": ad.DeviceType.CPU} | arguments)


def test_error_names_the_rule():
    registered.register()
    registered.failing().fail_at(60, 1, True)
    try:
        with pytest.raises(ConformanceError, match=r"the backend of device\(30\):0:\n  broken"):
            check_backend(TYPE)
    finally:
        registered.failing().fail_at(0)


def test_the_page_has_every_rule():
    page = registered.TESTS.parent / "docs" / "internals" / "add_a_backend.md"
    rows = re.findall(r"^\| `(backend\.\w+)` \| (.*) \|$", page.read_text(encoding="utf-8"), re.M)
    assert dict(rows) == {rule.id: rule.text for rule in BACKEND_RULES.values()}


def test_the_example_is_short():
    assert len(registered.EXAMPLE.read_text(encoding="utf-8").splitlines()) < 400

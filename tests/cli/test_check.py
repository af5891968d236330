"""python -m arrowdev check."""

import json
import re
import subprocess
import sys

import pytest

import compiler

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "arrowdev", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=compiler.ROOT / "tests" / "helpers",
    )


def test_command_on_a_producer():
    done = command("check", "numpy.arange(3)")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d+ of \d+ rules held; \d+ others do not apply", done.stdout)
    done = command(
        "check", "broken_ends.OnDevice(spoil_device=broken_ends.set_device(device_type=99))"
    )
    assert done.returncode == 1
    assert "BROKEN: device.type\n" in done.stdout
    assert "C device data interface, ArrowDeviceType" in done.stdout
    done = command("check", "broken_ends.on_vulkan()")
    assert done.returncode == 0
    assert "not tried: array.contents\n" in done.stdout and "no runtime for it" in done.stdout


def test_command_on_a_consumer():
    consumer = "broken_consumers.Consumer('deleter')"
    done = command(
        "check", "--consumer", consumer, "--read", "broken_consumers.Consumer.read", "--json"
    )
    assert done.returncode == 1, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["rule"] == "consumer.deleter"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--read", "list"], "check: --read needs --consumer"),
        (["--consumer", "--failing", "3"], "check: --failing is an object of a producer"),
        (["--consumer", "--read", "5"], "TypeError: --read is of type int, expected a function"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_command_refuses_options_without_effect(arguments, message):
    done = command("check", "numpy.from_dlpack", *arguments)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith(message)


def test_command_on_an_object_that_ends_the_program():
    done = command("check", "broken_ends.Exits('__arrow_c_array__')")
    assert done.returncode == 1, done.stderr
    assert "BROKEN: exports.usable\n" in done.stdout
    assert "found: __arrow_c_array__: SystemExit: 0" in done.stdout
    done = command("check", "__import__('sys').exit(0)")
    assert done.returncode == 2 and done.stderr.endswith("SystemExit: 0\n")
    done = command("check", "broken_ends.Exits('__dlpack__', raised=KeyboardInterrupt)")
    assert done.returncode in (130, -2)


def test_what_a_library_prints_is_not_in_the_report():
    done = command("check", "--json", "(print('hello'), numpy.arange(3))[1]")
    assert json.loads(done.stdout)["conforms"] and "hello\n" in done.stderr


WITHOUT_AN_OBJECT = ["1 +", "no_such_module.x", "object()", "numpy.arange", "1/0"]


@pytest.mark.parametrize("expression", WITHOUT_AN_OBJECT)
def test_command_without_an_object(expression):
    done = command("check", expression)
    assert done.returncode == 2 and done.stdout == "" and "Error: " in done.stderr
    assert "expression.py" not in done.stderr


@pytest.mark.parametrize("expression", ["type('A', (), {'__dlpack__': 1})()", "str.join"])
def test_command_on_name_without_module(expression):
    done = command("check", expression)
    assert done.returncode == 2 and " offers neither " in done.stderr, done.stderr

"""arrowdev.testing.pytest_plugin: a test for each rule."""

import os
import re
import subprocess
import sys

import broken_ends as broken
import pytest
from broken_consumers import Consumer

import compiler
from arrowdev.testing import _conformance, pytest_plugin
from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES


def run_plugin(folder, text, *options):
    text = "import pytest\nimport broken_ends as b\nfrom broken_consumers import Consumer\n" + text
    return run_pytest(folder, text, "-p", "arrowdev.testing.pytest_plugin", *options)


def run_pytest(folder, text, *options):
    (folder / "test_it.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "--strict-markers", "-p", "no:cacheprovider",
         *options, "test_it.py"],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(
            [str(compiler.ROOT / "tests" / "helpers"), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    return done.stdout


def test_plugin(tmp_path):
    text = """
@pytest.mark.arrow_producer(lambda: b.OnDevice(spoil_device=b.set_device(device_type=99)))
def test_broken(arrow_rule):
    arrow_rule.check()

@pytest.mark.arrow_producer(
    lambda: b.OnDevice(spoil_device=b.set_device(device_type=99)), ignore=["device.type"]
)
def test_ignored(arrow_rule):
    arrow_rule.check()

@pytest.mark.arrow_consumer(Consumer("max_version"), read=Consumer.read, recommended=True)
def test_consumer(arrow_rule):
    arrow_rule.check()
"""
    output = run_plugin(tmp_path, text)
    failed = re.findall(r"^FAILED (\S+)", output, re.M)
    assert failed == [
        "test_it.py::test_broken[device.type]",
        "test_it.py::test_consumer[consumer.max_version]",
    ], output
    assert "PASSED test_it.py::test_broken[device.reserved]" in output
    assert "PASSED test_it.py::test_consumer[consumer.release]" in output
    skipped = re.findall(r"^SKIPPED .*", output, re.M)
    (ignored,) = [line for line in skipped if "not tried" not in line]
    assert "ignored: broken: device.type" in ignored


@pytest.mark.parametrize("options", [(), ("-n2",), ("-v",)])
def test_plugin_deselects_what_does_not_apply(tmp_path, options):
    text = """
@pytest.mark.arrow_producer(factory=b.on_vulkan)
def test_producer(arrow_rule):
    arrow_rule.check()

@pytest.mark.arrow_consumer(Consumer().tensor, read=Consumer.read)
def test_consumer(arrow_rule):
    arrow_rule.check()
"""
    if "-n2" in options:
        pytest.importorskip("xdist")
    output = run_plugin(tmp_path, text, *options)
    reports = [
        _conformance.producer_report(broken.on_vulkan),
        _conformance.consumer_report(Consumer().tensor, read=Consumer.read),
    ]
    n_held = sum(len(report.held) for report in reports)
    n_untried = sum(len(report.untried) for report in reports)  # memory on Vulkan, above all
    n_rules = len(PRODUCER_RULES) + len(CONSUMER_RULES)
    n_others = n_rules - n_held - n_untried
    summary = output.splitlines()[-1]
    assert f"{n_held} passed, {n_untried} skipped, {n_others} deselected" in summary, output
    assert "no runtime for it in this version" in output
    assert output.count("deselected") == 1 and "does not apply" not in output
    assert options == ("-n2",) or "[100%]" in output


def test_plugin_without_a_mark(tmp_path):
    output = run_plugin(tmp_path, "def test_it(arrow_rule):\n    arrow_rule.check()\n")
    assert "has no mark arrow_producer(factory)" in output


MODULE = """
import numpy


def make():
    return numpy.arange(3)


def broken():
    import broken_ends
    return broken_ends.OnDevice(spoil_device=broken_ends.set_device(device_type=99))
"""
ONE_LINE = """
from arrowdev.testing.pytest_plugin import arrowdev_conformance

"""


def test_one_line(tmp_path):
    pytest.importorskip("numpy")
    (tmp_path / "mylib.py").write_text(MODULE)
    text = (
        ONE_LINE
        + """
test_broken = arrowdev_conformance("mylib.broken")
test_known = arrowdev_conformance("mylib.broken", ignore=["device.type"])
test_import = arrowdev_conformance(
    consumer="numpy.from_dlpack", read=lambda taken: taken.tolist(), recommended=True
)
"""
    )
    rules = "device.type or capsule.name or dlpack.name or consumer.values"
    output = run_pytest(tmp_path, text, "-k", rules)
    assert re.findall(r"^FAILED (\S+)", output, re.M) == ["test_it.py::test_broken[device.type]"]
    assert re.findall(r"^PASSED (\S+)", output, re.M) == [
        "test_it.py::test_broken[capsule.name]",
        "test_it.py::test_known[capsule.name]",
        "test_it.py::test_import[consumer.values]",
    ]
    assert "ignored: broken: device.type" in output
    assert output.count("does not apply to") == 2  # dlpack.name


def test_one_line_with_the_plug_in(tmp_path):
    numpy = pytest.importorskip("numpy")
    (tmp_path / "mylib.py").write_text(MODULE)
    text = ONE_LINE + 'test_arrow = arrowdev_conformance("mylib.make")\n'
    output = run_pytest(tmp_path, text, "-p", "arrowdev.testing.pytest_plugin")
    report = _conformance.producer_report(lambda: numpy.arange(3))
    assert not report.untried and not report.findings
    n_held = len(report.held)
    n_others = len(PRODUCER_RULES) - n_held
    assert f"{n_held} passed, {n_others} deselected" in output.splitlines()[-1], output


def test_one_line_of_a_module_that_is_missing(tmp_path):
    """The tests fail, and those of other lines are collected and run."""
    text = (
        ONE_LINE
        + """
test_gone = arrowdev_conformance("no_such_module.make")
def test_other(): pass
"""
    )
    output = run_pytest(tmp_path, text, "-k", "schema or other")
    n_failed = output.count("FAILED test_it.py::test_gone[")
    n_rules = sum("schema" in rule for rule in PRODUCER_RULES)
    assert n_failed == n_rules and "PASSED test_it.py::test_other" in output
    assert "No module named 'no_such_module'" in output


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "takes a factory or consumer="),
        ({"factory": "a.b", "consumer": "a.b"}, TypeError, "takes a factory or consumer="),
        ({"consumer": "a.b", "failing": "a.b"}, TypeError, "failing= goes with a factory"),
        ({"factory": "a.b", "read": "a.b"}, TypeError, "read= goes with consumer="),
        ({"factory": "a.b", "ignore": ["no.rule"]}, ValueError, "no such rules: no.rule"),
    ],
    ids=["nothing", "both", "failing", "read", "ignore"],
)
def test_one_line_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        pytest_plugin.arrowdev_conformance(**arguments)

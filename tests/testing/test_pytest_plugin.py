"""arrowdev.testing.pytest_plugin: a test for each rule."""

import os
import re
import subprocess
import sys

import broken_ends as broken
import pytest
from broken_consumers import Consumer

import compiler
from arrowdev.testing import _conformance
from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES


def run_plugin(folder, text, *options):
    (folder / "test_it.py").write_text(
        "import pytest\nimport broken_ends as b\nfrom broken_consumers import Consumer\n" + text
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "arrowdev.testing.pytest_plugin", "-rA",
         "--strict-markers", "-p", "no:cacheprovider", *options, "test_it.py"],
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

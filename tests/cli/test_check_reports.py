"""python -m arrowdev check: JSON, JUnit XML and the badge."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest

import compiler
from arrowdev.testing import _rules

pytest.importorskip("numpy")

SCHEMA = compiler.ROOT / "docs" / "_static" / "check.schema.json"
# reserved must be zero, a device_id of -1 is recommended.
BROKEN = """broken_ends.OnDevice(spoil_device=lambda struct: (
    broken_ends.set_device(device_id=5)(struct), struct.reserved.__setitem__(2, 1)))"""
CONSUMER = ["--consumer", "broken_consumers.Consumer('deleter', 'max_version')",
            "--read", "broken_consumers.Consumer.read"]  # fmt: skip
CRASH = "broken_ends.Ends('segfault')"


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "arrowdev", "check", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=compiler.ROOT / "tests" / "helpers",
    )


# --- JSON -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["numpy.arange(3)"], [BROKEN], CONSUMER, [CRASH]],
    ids=["sound", "broken", "consumer", "crash"],
)
def test_json_has_its_schema(arguments):
    jsonschema = pytest.importorskip("jsonschema")
    done = command(*arguments, "--json")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema)
    assert set(found) == set(schema["properties"]) == set(schema["required"])
    assert found["conforms"] == (done.returncode == 0)
    rules = _rules.CONSUMER_RULES if "--consumer" in arguments else _rules.PRODUCER_RULES
    named = [*found["held"], *(f["rule"] for f in found["findings"]), *found["untried"]]
    assert sorted([*named, *found["not_applicable"]]) == sorted(rules)  # each once


def test_schema_refuses_other_documents():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    found = json.loads(command(BROKEN, "--json").stdout)
    for change in (
        {"format": 2},
        {"kind": "both"},
        {"held": ["a rule"]},
        {"untried": {"device.order": 5}},
        {"findings": [{**found["findings"][0], "level": "may"}]},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(found | change, schema)


def test_what_counts():
    """Recommended rules with --recommended only, and ignored ones never."""

    def counted(*options):
        done = command(BROKEN, "--json", *options)
        findings = json.loads(done.stdout)["findings"]
        found = {finding["rule"] for finding in findings if finding["counts"]}
        assert done.returncode == bool(found)
        return found

    assert counted("--recommended") == {"device.reserved", "device.id"}
    assert counted("--ignore", "device.reserved") == set()
    assert (
        counted("--recommended", "--ignore", "device.reserved", "--ignore", "device.id") == set()
    )
    assert (
        "BROKEN, ignored: device.reserved\n"
        in command(BROKEN, "--ignore", "device.reserved").stdout
    )


def test_unknown_rule_is_refused():
    done = command("numpy.arange(3)", "--ignore", "device.reserve")
    assert done.returncode == 2 and "no such rule: device.reserve" in done.stderr


# --- JUnit XML ------------------------------------------------------------------------

# Of the schemas of Ant and Jenkins: attributes, all of them required, and children in order.
STRUCTURE = {
    "testsuites": ("name tests failures errors skipped time", ["testsuite"]),
    "testsuite": (
        "name tests failures errors skipped time timestamp hostname",
        ["properties", "testcase"],
    ),
    "properties": ("", ["property"]),
    "property": ("name value", []),
    "testcase": ("classname name time", ["skipped", "error", "failure"]),
    "failure": ("type message", []),
    "error": ("type message", []),
    "skipped": ("message", []),
}


def has_the_structure(element):
    attributes, children = STRUCTURE[element.tag]
    assert set(element.attrib) == set(attributes.split())
    places = [children.index(child.tag) for child in element]
    assert places == sorted(places)
    for child in element:
        has_the_structure(child)


def junit(tmp_path, *arguments):
    path = tmp_path / "conformance.xml"
    done = command(*arguments, "--junit", str(path))
    top = xml.fromstring(path.read_bytes())
    has_the_structure(top)
    (suite,) = top
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert len(cases) == len(list(suite.iter("testcase")))
    for element in (top, suite):
        assert element.get("tests") == str(len(cases))
        for name, counter in (
            ("failure", "failures"),
            ("error", "errors"),
            ("skipped", "skipped"),
        ):
            assert element.get(counter) == str(len(list(suite.iter(name))))
    return done, cases


def test_junit_of_a_producer(tmp_path):
    done, cases = junit(tmp_path, BROKEN)
    assert done.returncode == 1 and "BROKEN: device.reserved" in done.stdout
    (failure,) = cases["device.reserved"]
    assert failure.tag == "failure" and "reserved is [0, 0, 1]" in failure.get("message")
    assert "C device data interface, ArrowDeviceArray.reserved" in failure.text
    (recommended,) = cases["device.id"]
    assert recommended.get("message").startswith("recommended only: not followed: device.id")
    (untried,) = cases["device.order"]
    assert untried.get("message").startswith("not tried: ")
    assert len(cases["capsule.name"]) == 0
    assert "dlpack.name" not in cases  # does not apply
    assert cases["device.reserved"].get("classname") == "broken_ends.OnDevice"


def test_junit_of_ignored_rules(tmp_path):
    done, cases = junit(tmp_path, BROKEN, "--ignore", "device.reserved", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["conforms"]
    (ignored,) = cases["device.reserved"]
    assert ignored.get("message").startswith("ignored: broken: device.reserved")


def test_junit_of_a_consumer(tmp_path):
    done, cases = junit(tmp_path, *CONSUMER)
    assert done.returncode == 1
    failed = [name for name, case in cases.items() if case.find("failure") is not None]
    assert failed == ["consumer.deleter"]


def test_junit_of_a_crash(tmp_path):
    _, cases = junit(tmp_path, CRASH)
    (failure,) = cases["process.alive"]
    assert "signal 11" in failure.get("message")
    assert "schema.format" in cases


def test_junit_without_an_object(tmp_path):
    done, cases = junit(tmp_path, "1 / 0")
    assert done.returncode == 2 and done.stdout == ""
    (error,) = cases["object"]
    assert error.get("message") == "ZeroDivisionError: division by zero"
    assert "Traceback" in error.text and error.text in done.stderr
    _, cases = junit(tmp_path, r"int('\x1b\ud800<&>')")
    (error,) = cases["object"]
    assert error.get("message").endswith(r"'\x1b\ud800<&>'")


def test_file_that_cannot_be_written(tmp_path):
    done = command("numpy.arange(3)", "--junit", str(tmp_path))
    assert done.returncode == 1 and "Is a directory" in done.stderr


# --- the badge ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message", "color"),
    [
        (["numpy.arange(3)"], r"(\d+) of \1 rules held", "brightgreen"),
        ([BROKEN], r"1 of \d+ rules broken", "red"),
        (["no_such_module.x"], "not checked", "lightgrey"),
    ],
    ids=["sound", "broken", "no object"],
)
def test_badge(tmp_path, arguments, message, color):
    command(*arguments, "--badge", str(tmp_path / "badge.json"))
    badge = json.loads((tmp_path / "badge.json").read_text())
    error = {"isError": True} if color == "lightgrey" else {}
    label = {"schemaVersion": 1, "label": "Arrow and DLPack"}
    assert badge == {**label, "message": badge["message"], "color": color, **error}
    assert re.fullmatch(message, badge["message"]), badge

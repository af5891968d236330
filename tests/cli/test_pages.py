"""The pages of ``--html``, the picture of ``--svg``, the version of ``--json``, and the script."""

import html.parser
import json
import pathlib
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from arrowdev import __main__ as command
from arrowdev._cli import doctor, matrix_page, matrix_text, pairs
from arrowdev._cli.libraries import Bytes, Ctypes, Memoryview, Payload

SVG = "{http://www.w3.org/2000/svg}"


class Page(html.parser.HTMLParser):
    """The tags, the texts by tag, and what a page loads."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.loaded, self.tags = [], {}, [], set()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.loaded += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.texts.setdefault(tag, []).append(data)


class Markup(Memoryview):
    """A library whose name and messages are markup."""

    name = "<b>&"

    def direct(self, payload):
        def refuse(x):
            raise TypeError('<script>alert(1)</script> & "quoted"')

        return {"<i>(x)": refuse}


def made(*peers):
    payload = Payload("int64", 20)
    return pairs.run_matrix([peer() for peer in peers], payload)


def test_matrix_page(capsys, tmp_path):
    target = tmp_path / "matrix.html"
    only = ("--only", "memoryview,bytes,ctypes", "--device", "cpu")
    assert command.main(["matrix", *only, "--html", str(target)]) == 0
    printed = capsys.readouterr().out
    page = Page(target.read_text("utf-8"))
    assert page.loaded == [] and {"svg", "button", "script", "output"} <= page.tags
    lead = ["".join(page.texts["p"])]
    assert "through arrowdev: 5 zero-copy, 1 refused, of 6 pairs" in lead[0]
    [report] = page.texts["pre"]
    # What the button copies is the text, with the times.
    assert printed.splitlines()[0] in report and "nanoseconds:" in report
    assert "nanoseconds" not in printed


def test_picture_has_a_square_for_each_pair_with_its_reason(tmp_path, capsys):
    target = tmp_path / "matrix.svg"
    only = ("--only", "memoryview,bytes,ctypes", "--device", "cpu")
    assert command.main(["matrix", *only, "--svg", str(target)]) == 0
    squares = ElementTree.parse(target).iter(f"{SVG}g")
    shown = {g.find(f"{SVG}title").text: g.find(f"{SVG}rect").get("class") for g in squares}
    assert len(shown) == 2 * 6
    [refused] = [text for text in shown if text.startswith("bytes to ctypes, through arrowdev")]
    assert refused.endswith("refused: TypeError: underlying buffer is not writable")
    assert shown[refused] == "refused"
    [fine] = [text for text in shown if text.startswith("ctypes to memoryview, directly")]
    assert re.search(r"\nmemoryview\(x\): zero-copy, [\d.]+[kM]? ns$", fine)
    assert shown[fine] == "zero"


def test_markup_in_names_and_reasons_is_escaped():
    matrix = made(Markup, Bytes)
    text = matrix_page.page(matrix, {})
    page = Page(text)
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    assert "i" not in page.tags
    assert all(number.isdecimal() for number in page.texts["b"])
    ElementTree.fromstring(matrix_page.picture(matrix))


def test_page_without_a_pair():
    matrix = pairs.Matrix(Payload())
    Page(matrix_page.page(matrix, {}))
    ElementTree.fromstring(matrix_page.picture(matrix))
    assert list(matrix_text.lines(matrix, {}, has_times=True))


@pytest.mark.parametrize("option", ["--html", "--svg"])
def test_file_that_cannot_be_written(capsys, tmp_path, option):
    target = tmp_path / "missing" / "file"
    only = ("--only", "memoryview", "--device", "cpu")
    assert command.main(["matrix", *only, option, str(target)]) == 1
    assert f"matrix: [Errno 2] No such file or directory: '{target}'" in capsys.readouterr().err
    assert command.main(["matrix", *only, option, ""]) == 1
    assert "matrix: [Errno 21] Is a directory: '.'" in capsys.readouterr().err


FOUND = {
    "format": 1,
    "arrowdev": "1",
    "extension": "_core.so",
    "python": "3",
    "platform": "linux",
    "runtimes": [
        {
            "name": "cuda",
            "device_type": "CUDA",
            "usable": False,
            "reason": "no <driver>",
            "description": None,
            "devices": None,
            "current": None,
        },
        {
            "name": "opencl",
            "device_type": "OPENCL",
            "usable": True,
            "reason": None,
            "description": "OpenCL 3",
            "devices": 1,
            "current": None,
        },
    ],
    "devices": [{"device": "cpu", "name": "host", "reason": None}],
    "environment": {},
    "packages": {"cupy": "1"},
    "libraries": [
        {"name": "a", "device": "cpu", "version": "1", "protocols": ["dlpack"], "reason": None},
        {
            "name": "b",
            "device": "cpu",
            "version": None,
            "protocols": [],
            "reason": "not installed",
        },
    ],
}


def test_doctor_page(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(doctor, "examine", lambda: FOUND)
    target = tmp_path / "doctor.html"
    assert command.main(["doctor", "--html", str(target)]) == 0
    printed = capsys.readouterr().out
    page = Page(target.read_text("utf-8"))
    assert page.loaded == [] and "".join(page.texts["pre"]) == printed.rstrip("\n")
    assert page.texts["h2"][:2] == ["Runtimes", "Devices"]
    assert {"no", "no <driver>"} <= {*page.texts["td"]} and "b" in page.texts["p"]
    missing = tmp_path / "missing" / "file"
    assert command.main(["doctor", "--html", str(missing)]) == 1
    assert "doctor: [Errno 2]" in capsys.readouterr().err


def test_doctor_in_colours(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda: FOUND)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert command.main(["doctor"]) == 0
    coloured = capsys.readouterr().out
    assert "\x1b[2mcuda  \x1b[0m  no   no <driver>" in coloured
    assert "\x1b[32mopencl\x1b[0m  yes  OpenCL 3, 1 device" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert command.main(["doctor"]) == 0
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["matrix", "--only", "memoryview", "--device", "cpu"],
        ["doctor"],
        ["inspect", "b'abc'"],
        ["check", "arrowdev.schema('int8')"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_json_has_a_version_of_its_format(monkeypatch, capsys, arguments):
    monkeypatch.setattr(doctor, "examine", lambda: FOUND)
    command.main([*arguments, "--json"])
    assert json.loads(capsys.readouterr().out)["format"] == 1


def test_console_script(monkeypatch):
    """pyproject.toml names a function, which is the same program under a shorter name."""
    project = (pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    [target] = re.findall(r'\[project\.scripts\]\narrowdev = "(.*)"', project)
    module, name = target.split(":")
    code = f"import sys; from {module} import {name}; sys.argv[0] = 'arrowdev'; sys.exit({name}())"
    done = subprocess.run(
        [sys.executable, "-c", code, "matrix", "--bad"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stderr.startswith("usage: arrowdev "), done.stderr
    monkeypatch.setattr(sys, "argv", ["/lib/arrowdev/__main__.py"])
    assert command.parser().prog == "python -m arrowdev"


def test_missing_device_is_an_error_with_files_written(capsys, tmp_path):
    target = tmp_path / "matrix.html"
    arguments = ["--only", "memoryview", "--device", "cpu,vulkan", "--html", str(target)]
    assert command.main(["matrix", *arguments]) == 1
    assert "no library works on vulkan" in capsys.readouterr().err
    assert target.exists()


def test_peers_of_python_alone_have_no_ratio():
    matrix = made(Memoryview, Ctypes)
    assert [pair.ratio for pair in matrix.pairs] == [None] * 4

"""docs/conformance.md: the recipes for the CI of another project run as they stand."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

import compiler

PAGE = compiler.ROOT / "docs" / "conformance.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not a checkout")

MYLIB = """
import arrowdev

def make():
    return arrowdev.array(memoryview(b"abc"), copy=True)

def to_list(array):
    return array.to_pylist()

from_arrow = arrowdev.array
"""


def block(heading, language=""):
    """The first block of code below a heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    return re.search(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)[1]


def run(command, folder, **options):
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
    }
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=110,
        cwd=folder,
        env=environment,
        **options,
    )


@pytest.fixture
def project(tmp_path):
    (tmp_path / "mylib.py").write_text(MYLIB)
    return tmp_path


def test_workflow_of_ten_lines(project):
    recipe = block("In your CI", "yaml")
    assert recipe.count("\n") == 10
    install, check = re.findall(r"^      - run: (.*)$", recipe, re.M)
    source = re.search(r'^Source = "(.*)"$', (compiler.ROOT / "pyproject.toml").read_text(), re.M)[
        1
    ]
    assert install == f"pip install . git+{source}"
    done = run(check, project, shell=True)
    assert done.returncode == 0, done.stderr
    suite = xml.parse(project / "conformance.xml").getroot()
    assert suite.get("failures") == "0" and int(suite.get("tests")) > 20
    assert json.loads((project / "badge.json").read_text())["color"] == "brightgreen"


def test_one_line_for_pytest(project):
    (project / "test_mylib.py").write_text(block("As a plug-in of pytest"))
    done = run([sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider"], project)
    assert done.returncode == 0, done.stdout
    assert "PASSED test_mylib.py::test_arrow[release.lifetime]" in done.stdout

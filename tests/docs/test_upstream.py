"""docs/upstream: each report's reproducer still prints what the page says.

A page describes one version, and is skipped with another one: find out whether the library has
mended the fault, and write the page anew or remove it.
"""

import importlib.metadata
import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from distributions import MODULES

import compiler

FOLDER = compiler.ROOT / "docs" / "upstream"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")
VERSION = re.compile(r"^\| version \| ([\w-]+) (\S+) \|$", re.M)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
NEEDS_GPU = {"pylibcudf"}
ENDS = {-signal.SIGSEGV: "Segmentation fault", -signal.SIGABRT: "Aborted"}


def read(name):
    """(library, version, blocks by language) of a page."""
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    library, version = VERSION.search(text).groups()
    return library, version, dict(BLOCK.findall(text))


def program(blocks, folder):
    """The command that runs the reproducer."""
    if "python" in blocks:
        return [sys.executable, "-c", blocks["python"]]
    import pyarrow

    home = Path(pyarrow.__file__).parent
    (library,) = home.glob("libarrow.so.*00")
    flags = re.findall(r" (-std\S+|-O\d|-g|-fsanitize\S+)(?= )", blocks["console"])
    source, target = folder / "reproducer.cpp", folder / "reproducer"
    source.write_text(blocks["cpp"], encoding="utf-8")
    command = [*compiler.command("c++"), *flags, source, f"-I{home / 'include'}", library]
    subprocess.run([*command, f"-Wl,-rpath,{home}", "-o", target], check=True)
    return [target]


def printed(command):
    environment = compiler.clean_environment() | {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=environment, cwd=os.sep
    )
    return f"{done.stdout}{done.stderr}\n{ENDS.get(done.returncode, '')}"


@pytest.mark.slow
@pytest.mark.timeout(300)  # some compile Arrow's headers
@pytest.mark.parametrize("name", PAGES)
def test_deviation_is_still_there(name, tmp_path):
    library, version, blocks = read(name)
    try:
        found = importlib.metadata.version(library).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        if library in NEEDS_GPU:
            pytest.skip(f"needs a GPU, and {library}")
        pytest.skip(f"could not import '{MODULES.get(library, library)}'")
    if found != version:
        pytest.skip(f"{library} {found} is installed, the page is about {version}")
    output = printed(program(blocks, tmp_path))
    rest = output
    for line in blocks["text"].splitlines():
        _, separator, rest = rest.partition(line)
        assert separator, f"{line!r} does not follow in:\n{output}"


def test_the_readme_counts_the_libraries():
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    libraries = set(re.findall(r"^\| ([\w-]+) [\w.]+ \| \[", index, re.M))
    readme = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
    assert f"[Reports](docs/upstream/index.md) on {len(libraries)} libraries" in readme


def test_index_lists_the_reports():
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\((\w+)\.md\)", index)) == PAGES
    assert re.search(r":hidden:\n\n(.*?)```", index, re.S)[1].split() == re.findall(
        r"\]\((\w+)\.md\)", index
    )

"""The layers of csrc, as docs/internals/architecture.md lists them."""

import graphlib
import re
import shutil

import pytest

import compiler
from compiler import CSRC

LAYERS = compiler.layers()
WITHOUT_PYTHON = LAYERS[: LAYERS.index("support")]


def files(*patterns):
    found = (path for pattern in patterns for path in CSRC.rglob(pattern))
    return sorted(str(path.relative_to(CSRC)) for path in found)


def includes(name):
    text = (CSRC / name).read_text(encoding="utf-8")
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.M)


def layer(name):
    return LAYERS.index(name.split("/")[0])


def test_table_lists_the_folders():
    assert sorted(LAYERS) == sorted(path.name for path in CSRC.iterdir() if path.is_dir())


def test_the_header_to_read_first_describes_its_folder():
    for folder, header in compiler.headers_to_read_first().items():
        text = (CSRC / folder / header).read_text(encoding="utf-8")
        paragraph = text.split("*/")[0]
        assert paragraph.startswith(f"/* {folder}/: "), header
        assert paragraph.count("\n") <= 12, header


def test_includes_point_downwards():
    upwards = {
        (name, included)
        for name in files("*.[ch]", "*.def", "*.inc")
        for included in includes(name)
        if (CSRC / included).exists() and layer(included) > layer(name)
    }
    assert upwards == set()


def test_layers_below_support_never_include_python():
    assert [
        name
        for name in files("*.[ch]", "*.def", "*.inc")
        if layer(name) < LAYERS.index("support") and "Python.h" in includes(name)
    ] == []


def symbols(folder, directory):
    """The symbols that the sources of a folder define and need, as pairs of source and symbol."""
    objects = directory / folder
    objects.mkdir()
    sources = [name for name in files("*.c") if name.startswith(f"{folder}/")]
    flags = ["-O0", "-w", "-I", str(CSRC), "-I", compiler.PYTHON_INCLUDE]
    flags += ['-DARROWDEV_VERSION=""']
    paths = [str(CSRC / name) for name in sources]
    done = compiler.run([*compiler.command(), *flags, "-c", *paths], cwd=objects)
    assert done.returncode == 0, done.stderr
    defined, needed = set(), set()
    listing = compiler.run(["nm", "-A", "-g", *sorted(map(str, objects.glob("*.o")))])
    assert listing.returncode == 0, listing.stderr
    for line in listing.stdout.splitlines():
        kind, symbol = line.split()[-2:]
        source = f"{folder}/{line.split('.o:')[0].rsplit('/', 1)[1]}"
        (needed if kind == "U" else defined).add((source, symbol))
    assert len({source for source, _ in defined | needed}) == len(sources)
    return defined, needed


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """Triples (source, source, symbol): the first source needs a symbol of the second."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    directory = tmp_path_factory.mktemp("objects")
    folders = [name for name in LAYERS if files(f"{name}/**/*.c")]
    found = {folder: symbols(folder, directory) for folder in folders}
    home = {symbol: source for defined, _ in found.values() for source, symbol in defined}
    return {
        (source, home[symbol], symbol)
        for _, needed in found.values()
        for source, symbol in needed
        if symbol in home
    }


def test_calls_point_downwards(calls):
    """Covers functions that are declared in one layer and defined in a higher one."""
    upwards = {
        (source, symbol) for source, target, symbol in calls if layer(target) > layer(source)
    }
    assert upwards == set()


def test_sources_of_the_bridge_make_no_circle(calls):
    needs = {}
    for source, target, _ in calls:
        if source.startswith("bridge/") and target.startswith("bridge/"):
            needs.setdefault(source, set()).add(target)
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError


@pytest.mark.parametrize("folder", LAYERS)
def test_files_of_a_folder_compile_alone(folder):
    """Compiles each file, without a Python include path where the layer promises that."""
    if folder in WITHOUT_PYTHON:
        paths = files("*.c", "*.h")
        flags = ["-I", str(CSRC), *compiler.STRICT]
    else:
        paths = files("*.h")
        flags = ["-I", str(CSRC), "-I", compiler.PYTHON_INCLUDE]
    own = [str(CSRC / name) for name in paths if name.startswith(f"{folder}/")]
    done = compiler.run([*compiler.command(), "-fsyntax-only", *flags, "-x", "c", *own])
    assert done.returncode == 0, done.stderr


def test_guards_are_named_after_their_files():
    for name in files("*.h"):
        text = (CSRC / name).read_text(encoding="utf-8")
        guard = "AD_" + re.sub(r"\W", "_", name).upper()
        assert re.search(rf"^#ifndef {guard}\n#define {guard}$", text, re.M), name
        assert text.endswith(f"#endif /* {guard} */\n"), name


def test_diagrams_name_functions_that_exist():
    boxes = [
        (path.name, *box)
        for path in (compiler.ROOT / "docs" / "internals" / "diagrams").glob("*.dot")
        for box in re.findall(r'label="([\w/]+\.c)\\n(\w+)\(\)"', path.read_text(encoding="utf-8"))
    ]
    assert len(boxes) > 30
    missing = [
        (diagram, file, function)
        for diagram, file, function in boxes
        if not re.search(rf"^{function}\(", (CSRC / file).read_text(encoding="utf-8"), re.M)
    ]
    assert missing == []

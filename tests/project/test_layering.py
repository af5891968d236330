"""The layers of csrc, as docs/internals/architecture.md lists them."""

import graphlib
import re
import shutil
from pathlib import Path

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


# errno.h is C's, too; the last two are the compilers'.
OF_C = """assert ctype errno float inttypes limits math stdalign stdarg stdatomic stdbool stddef
    stdint stdio stdlib string cpuid immintrin"""
OF_POSIX = re.compile(
    r"\b(?:pthread_\w+|sched_\w+|clock_\w+time|nanosleep|dl(?:open|sym|error|addr)|mmap|madvise"
    r"|syscall|sysconf|poll|eventfd|pipe|fcntl|fork|getpid|secure_getenv)\("
)


def test_only_os_h_knows_the_system():
    """In the layers that are built on several systems. The others are for Linux or POSIX."""
    of_the_system = {"base/os.h", "base/os_posix.c", "base/os_windows.c"}
    built = [name for name in files("*.[ch]", "*.inc") if layer(name) <= LAYERS.index("async")]
    foreign = {
        (name, header)
        for name in built
        for header in includes(name)
        if not (CSRC / header).exists()
        and not (CSRC / name).parent.joinpath(header).exists()  # arrowdev/include
        and header.removesuffix(".h") not in OF_C.split()
    }
    assert {name for name, _ in foreign} <= of_the_system, foreign
    assert {"pthread.h", "dlfcn.h", "poll.h"} <= {header for _, header in foreign}
    texts = {name: (CSRC / name).read_text(encoding="utf-8") for name in built}
    calls = {
        (name, call)
        for name, text in texts.items()
        for call in OF_POSIX.findall(re.sub(r'/\*.*?\*/|"[^"\n]*"', "", text, flags=re.S))
    }
    assert {name for name, _ in calls} <= of_the_system, calls
    assert ("base/os_posix.c", "nanosleep(") in calls


def objects_of_the_build(sources):
    """The objects of the last build of the extension, or None if csrc has changed since."""
    changed = max(path.stat().st_mtime for path in CSRC.rglob("*.*"))
    for build in (compiler.ROOT / "build").glob("temp.*"):
        found = [(build / "csrc" / name).with_suffix(".o") for name in sources]
        if all(path.exists() and path.stat().st_mtime > changed for path in found):
            return found
    return None


def compile_objects(sources, directory):
    flags = ["-O0", "-w", "-I", str(CSRC), "-I", compiler.PYTHON_INCLUDE, '-DARROWDEV_VERSION=""']
    for folder in {layer(name) for name in sources}:
        objects = directory / LAYERS[folder]
        objects.mkdir()
        paths = [str(CSRC / name) for name in sources if layer(name) == folder]
        done = compiler.run([*compiler.command(), *flags, "-c", *paths], cwd=objects)
        assert done.returncode == 0, done.stderr
    return [directory / LAYERS[layer(name)] / f"{Path(name).stem}.o" for name in sources]


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """Triples (source, source, symbol): the first source needs a symbol of the second."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    sources = files("*.c")
    objects = objects_of_the_build(sources)
    objects = objects or compile_objects(sources, tmp_path_factory.mktemp("objects"))
    listing = compiler.run(["nm", "-A", "-g", *map(str, objects)])
    assert listing.returncode == 0, listing.stderr
    source_of = dict(zip(map(str, objects), sources, strict=True))
    home, needed = {}, set()
    for line in listing.stdout.splitlines():
        source = source_of[line.split(":")[0]]
        kind, symbol = line.split()[-2:]
        if kind == "U":
            needed.add((source, symbol))
        elif symbol not in home or layer(source) < layer(home[symbol]):
            home[symbol] = source  # test_device/ defines some once more
    with_symbols = {*home.values(), *(source for source, _ in needed)}
    assert with_symbols == set(sources) - {"base/os_windows.c"}  # empty on other systems
    return {(source, home[symbol], symbol) for source, symbol in needed if symbol in home}


def test_calls_point_downwards(calls):
    """Covers functions that are declared in one layer and defined in a higher one."""
    upwards = {
        (source, symbol) for source, target, symbol in calls if layer(target) > layer(source)
    }
    assert upwards == set()


def test_what_both_extensions_have_is_without_variables(tmp_path):
    """The process would have two of each."""
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    [made] = compile_objects(["test_device/both.c"], tmp_path)
    listing = compiler.run(["readelf", "-SW", str(made)]).stdout
    sizes = dict(re.findall(r" (\.\S+) +[A-Z]+ +\w+ \w+ (\w+) ", listing))
    assert int(sizes[".text"], 16) > 0
    variables = {
        name: sizes[name] for name in sizes if re.match(r"\.t?(data|bss)(?!.*rel.ro)", name)
    }
    assert variables and {int(size, 16) for size in variables.values()} == {0}


@pytest.mark.parametrize("folder", ["bridge", "compute", "copy", "model", "stream", "validate"])
def test_sources_of_a_folder_make_no_circle(calls, folder):
    """Two files that need each other are one."""
    needs = {}
    for source, target, _ in calls:
        if (
            source.startswith(f"{folder}/")
            and target.startswith(f"{folder}/")
            and source != target
        ):
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

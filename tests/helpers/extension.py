"""Extension modules that are compiled against arrowdev.h, built on first use."""

import hashlib
import importlib.util
import os
import sysconfig
import tempfile
from pathlib import Path

import arrowdev
import compiler

# What arrowdev.h promises to be clean with. Python's own headers are not.
FLAGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
STANDARDS = {"c": "-std=c11", "c++": "-std=c++17"}


def command(language="c", flags=FLAGS):
    """The compiler of a user of arrowdev.h, as an argument list."""
    program = compiler.command(language)[:-1]  # without its -std=
    include = ["-I", arrowdev.get_include(), "-isystem", compiler.PYTHON_INCLUDE]
    return [*program, STANDARDS[language], *flags, *include]


def build(source, language="c", flags=FLAGS, more=()):
    """The path of the extension module that `source` is compiled to; its name is the file's."""
    source = Path(source)
    options = ["-O2", "-g", "-fPIC", "-shared", *more]
    arguments = [*command(language, flags), *options, str(source)]
    headers = sorted(Path(arrowdev.get_include()).glob("*.h"))
    files = [source, *headers]
    content = repr(arguments).encode() + b"".join(path.read_bytes() for path in files)
    key = hashlib.sha256(content).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"arrowdev-tests-{os.getuid()}" / f"extension-{key}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = folder / f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not target.exists():
        fresh = folder / f"{os.getpid()}.so"
        done = compiler.run([*arguments, "-o", str(fresh)])
        assert done.returncode == 0, done.stderr
        fresh.replace(target)
    return target


def load(path):
    """The module of a built extension, initialized anew at each call."""
    spec = importlib.util.spec_from_file_location(path.name.split(".")[0], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""The command ``trace``: run a program and write its trace, or make the page of a trace."""

import argparse
import builtins
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
import threading
import types

import arrowdev
from arrowdev import _trace
from arrowdev._cli import trace_files
from arrowdev._cli.terminal import OutputError, write
from arrowdev._pages import trace_page

DESCRIPTION = """\
Run a program and write a trace of its exchanges, copies and waits, for Perfetto or as a page.

    python -m arrowdev trace app.py --its --options
    python -m arrowdev trace --html page.html -m package.module
    python -m arrowdev trace --html page.html --from exchange.json

A summary goes to stderr. The exit status is that of the program, whose threads are waited for
unless they are daemons. The page is one HTML file that needs no network. With --from it is made
of a file that exists; with several files, the processes that wrote them are put on one axis.
"""
# The files that find and run a program.
_OWN = (__file__, pkgutil.__file__, importlib.util.__file__, "<frozen importlib.util>",
        "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>",
        "<frozen zipimport>")  # fmt: skip


def add_arguments(parser):
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE",
        help="write the trace as JSON (trace.json if neither -o nor --html is given)",
    )
    parser.add_argument("--html", metavar="FILE", help="write the trace as a page")
    parser.add_argument(
        "--from",
        dest="files",
        metavar="FILE",
        action="append",
        help="a trace to make the page of, instead of a program; again for another process",
    )
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, help="a module to run, and its arguments"
    )
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, help="a file to run, and its arguments"
    )
    parser.set_defaults(refuse=parser.error)


def run(arguments):
    program = arguments.module or arguments.script
    if arguments.files:
        if program or arguments.output or not arguments.html:
            arguments.refuse("--from makes a page: it needs --html, and no program and no -o")
        _refuse_to_overwrite(arguments, arguments.files)
        write(arguments.html, trace_page.page(trace_files.read(arguments.files)))
        return 0
    if not program:
        arguments.refuse("name a program to run, or a trace with --from")
    if os.environ.get("ARROWDEV_TRACE"):
        arguments.refuse("ARROWDEV_TRACE is set, and traces the program already; unset it")
    _refuse_to_overwrite(arguments, arguments.script[:1])
    output = arguments.output or (None if arguments.html else "trace.json")
    try:
        running = arrowdev.trace(output, html=arguments.html)
    except ValueError as error:
        arguments.refuse(str(error))
    try:
        for file in (running.file, running.html):
            if file is not None:
                open(file, "a").close()  # it can be written
        with running:
            status = _status_of(program, arguments.module is not None)
            threading._shutdown()  # as at the end of a program: waits for threads and executors
    except OSError as error:  # the program's own are among its status
        raise OutputError(str(error)) from error
    finally:
        if running.data:
            _tell(running.summary())
    return status


def _refuse_to_overwrite(arguments, names):
    for output in filter(None, (arguments.output, arguments.html)):
        for name in names:
            if _trace.is_same_file(output, name):
                arguments.refuse(f"{name} would be overwritten; name another file for the output")


def _tell(text):
    """Print to stderr, as Python does at its end: what the program has made of it may fail."""
    if sys.stderr is not None:
        with contextlib.suppress(Exception):
            print(text, file=sys.stderr)


def _status_of(program, is_module):
    """Run a program as Python does; return its exit status."""
    sys.argv[:] = program
    try:
        if is_module:
            sys.path[0] = os.getcwd()
            code, main = _code_and_main_of_module(program[0])
            sys.argv[0] = main.__file__
        else:
            code, main = _code_and_main_of_file(os.path.abspath(program[0]))
        # It stays: threads that run on, and what runs at exit, look their names up in it.
        sys.modules["__main__"] = main
        exec(code, main.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        _tell(end.code)
        return 1
    except Exception as error:
        frames = _frames_of_program(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        return 1
    return 0


def _new_main(cached=None, **names):
    main = types.ModuleType("__main__")
    main.__dict__.update({"__builtins__": builtins, **names})
    if sys.version_info < (3, 15):  # no module has it since
        main.__dict__["__cached__"] = cached
    return main


def _code_and_main_of_spec(spec):
    """Return the code of a program, and the module __main__ that it runs in."""
    main = _new_main(
        spec.cached,
        __spec__=spec,
        __loader__=spec.loader,
        __file__=spec.origin,
        __package__=spec.parent,
    )
    return spec.loader.get_code(spec.name), main


def _code_and_main_of_module(name):
    """Of a module, or of a package with __main__.py."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:  # a package
        return _code_and_main_of_module(f"{name}.__main__")
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ImportError(f"No module named {name}")
    return _code_and_main_of_spec(spec)


def _code_and_main_of_file(path):
    """Of a script, compiled or not, and of a folder or an archive with __main__.py."""
    finder = pkgutil.get_importer(path)
    spec = finder and finder.find_spec("__main__")
    if spec:
        sys.path[0] = path
        return _code_and_main_of_spec(spec)
    sys.path[0] = os.path.dirname(path)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main = _new_main(__loader__=loader, __file__=path, __package__=None)
    if path.endswith(".pyc"):
        loader = importlib.machinery.SourcelessFileLoader("__main__", path)
        return loader.get_code("__main__"), main
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True), main


def _frames_of_program(frames):
    """Return the frames of a traceback from the first one of the program on."""
    while frames is not None and frames.tb_frame.f_code.co_filename in _OWN:
        frames = frames.tb_next
    return frames

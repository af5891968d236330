"""The command ``trace``: run a program and write its trace, or make the page of a trace."""

import argparse
import os
import runpy
import sys
import threading
import traceback

import arrowdev
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
        write(arguments.html, trace_page.page(trace_files.read(arguments.files)))
        return 0
    if not program:
        arguments.refuse("name a program to run, or a trace with --from")
    if os.environ.get("ARROWDEV_TRACE"):
        arguments.refuse("ARROWDEV_TRACE is set, and traces the program already; unset it")
    output = arguments.output or (None if arguments.html else "trace.json")
    running = arrowdev.trace(output, html=arguments.html)
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
        if running.data and sys.stderr is not None:
            print(running.summary(), file=sys.stderr)
    return status


def _status_of(program, is_module):
    """Run a program as Python does; return its exit status."""
    sys.argv[:] = program
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(program[0]))
    try:
        if is_module:
            runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception as error:
        traceback.print_exception(type(error), error, _of_program(error.__traceback__))
        return 1
    return 0


def _of_program(frames):
    """Return the frames of a traceback that are the program's."""
    own = (__file__, runpy.__file__, "<frozen runpy>")
    while frames is not None and frames.tb_frame.f_code.co_filename in own:
        frames = frames.tb_next
    return frames

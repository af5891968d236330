"""The command ``trace``: the page of a trace."""

from arrowdev._cli import page, trace_files, trace_page

DESCRIPTION = """\
Make a page of the trace of a program: its exchanges, copies and waits on a timeline.

The page is one HTML file that needs no network. A trace is written by arrowdev.trace("FILE"), or
by a program that is run with ARROWDEV_TRACE=FILE. With several files, the processes that wrote
them are put on one axis.
"""


def add_arguments(parser):
    parser.add_argument(
        "--from",
        dest="files",
        metavar="FILE",
        action="append",
        required=True,
        help="a trace; again for the one of another process",
    )
    parser.add_argument("--html", metavar="FILE", required=True, help="write the page")


def run(arguments):
    trace = trace_files.read(arguments.files)
    page.write(arguments.html, trace_page.page(trace))
    return 0

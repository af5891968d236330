"""The command line: ``python -m arrowdev COMMAND``, or ``arrowdev COMMAND``."""

import argparse
import faulthandler
import os
import signal
import sys

import arrowdev
from arrowdev._cli import check, doctor, inspect, matrix, trace
from arrowdev._cli.terminal import OutputError

# A command is a module with DESCRIPTION, add_arguments(parser) and
# run(arguments), which returns the exit status.
COMMANDS = {
    "check": check,
    "doctor": doctor,
    "inspect": inspect,
    "matrix": matrix,
    "trace": trace,
}


def parser():
    is_script = os.path.basename(sys.argv[0]) == "arrowdev"
    top = argparse.ArgumentParser(
        prog="arrowdev" if is_script else "python -m arrowdev",
        description="Arrow device arrays between any two libraries, without a copy.",
    )
    top.add_argument("--version", action="version", version=f"arrowdev {arrowdev.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        summary = module.DESCRIPTION.partition("\n")[0]
        sub = commands.add_parser(
            name,
            help=summary,
            description=module.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
    return top


def main(argv=None):
    arguments = parser().parse_args(argv)
    try:
        return COMMANDS[arguments.command].run(arguments)
    except OutputError as error:
        if isinstance(error.__cause__, BrokenPipeError):  # the reader, such as `head`, has ended
            return 128 + signal.SIGPIPE
        print(f"{arguments.command}: {error}", file=sys.stderr)
        return 1


def run():
    """Run as a program of its own; the script `arrowdev` calls it."""
    if sys.stderr is None:  # closed by the shell: 2>&-
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    faulthandler.enable()  # print a traceback if a library crashes
    return main()


if __name__ == "__main__":
    sys.exit(run())

"""Builds arrowdev on a machine with a GPU, runs its CUDA suite there and takes figures.

    python tools/gpu_first_day.py OUT                     # all of it, in 9 minutes at most
    python tools/gpu_first_day.py OUT --only build,suite  # some steps
    python tools/gpu_first_day.py OUT --files races       # files of the suite that match

OUT gets eight files at most, and a copy of the sources where setuptools is old. Read report.md
first, which is printed line by line.
docs/internals/gpu_first_day.md says what the steps are, and what to look at.
"""

import argparse
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITE = ROOT / "tests" / "gpu_cuda"
# What says most comes first, in case the time does not suffice. The first ones also run with the
# hardware queues that a process has without the settings of tests/gpu_cuda/conftest.py.
N_QUEUES = 8
FEW_QUEUES = ("races", "own_streams", "release")
FIRST = ("libraries", "races", "graphs", "memory_kinds", "ending", "exchange", "release")
PACKAGES = (
    "torch", "cupy-cuda13x", "cupy-cuda12x", "jax", "numba-cuda", "cuda-core", "cuda-bindings",
    "cudf-cu13", "rmm-cu13", "numpy", "pyarrow", "pytest", "pytest-timeout", "pytest-xdist",
)  # fmt: skip
LIMITS_S = {"build": 240, "machine": 60, "suite": 400, "queues": 60, "docs": 100, "figures": 240}
FILE_LIMIT_S = 180


def has(module):
    return importlib.util.find_spec(module) is not None


class Run:
    def __init__(self, out, seconds):
        self.out, self.end = out, time.monotonic() + seconds
        self.lines = []
        self.is_good = True
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
            ),
            "PYTHONUNBUFFERED": "1",
            "ARROWDEV_GPU": "1",
        }

    def left(self):
        return self.end - time.monotonic()

    def say(self, line, *, is_good=True):
        self.is_good &= is_good
        self.lines.append(line)
        print(line, flush=True)

    def call(self, title, arguments, log, limit, *, folder=None, **environment):
        """Runs a program, adds what it prints to a log, and returns (exit status, output).

        Not in the source by default: `python -m` would import the package from there.
        """
        limit = min(limit, self.left())
        if limit < 5:
            self.say(f"- {title}: LEFT OUT, no time", is_good=False)
            return None, ""
        start = time.monotonic()
        try:
            done = subprocess.run(
                arguments,
                cwd=folder or self.out,
                env=self.environment | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit,
            )
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            status, output = "ran out of time", error.stdout or b""
        except OSError as error:
            status, output = str(error), b""
        output = output.decode(errors="replace")
        with open(self.out / log, "a", encoding="utf-8") as file:
            file.write(f"=== {title}: {status}\n$ {' '.join(map(str, arguments))}\n{output}\n")
        seconds = time.monotonic() - start
        self.say(f"- {title}: {status or 'ok'}, {seconds:.0f} s", is_good=status == 0)
        return status, output


# --- steps --------------------------------------------------------------------------------


def knows_licenses():
    """Whether setuptools reads a license as pyproject.toml states it: since version 77."""
    from importlib import metadata

    return int(metadata.version("setuptools").partition(".")[0]) >= 77


def copy_without_license(target):
    """What is built, with a pyproject.toml that an older setuptools reads."""
    shutil.rmtree(target, ignore_errors=True)
    for name in ("arrowdev", "csrc"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("*.so"))
    for name in ("setup.py", "README.md"):
        shutil.copy(ROOT / name, target)
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = re.sub(r"^license.*\n", "", text, flags=re.M)
    (target / "pyproject.toml").write_text(text, encoding="utf-8")
    return target


def build(run, arguments):
    """In place, or nothing where arrowdev can be imported from elsewhere."""
    if arguments.installed:
        run.say("- build: --installed, so none")
        return
    folder = ROOT
    if not knows_licenses():
        folder = copy_without_license(run.out / "source")
        run.environment["PYTHONPATH"] = os.pathsep.join(
            [str(folder), run.environment["PYTHONPATH"]]
        )
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    command.append(f"-j{os.cpu_count()}")
    status, output = run.call("build", command, "build.log", LIMITS_S["build"], folder=folder)
    if status != 0:
        run.say("```\n" + "\n".join(output.splitlines()[-15:]) + "\n```")
        raise SystemExit(finish(run))


def machine(run, arguments):
    run.say(f"- {platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} CPUs")
    from importlib import metadata

    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    run.say(f"- {', '.join(found)}")
    query = "--query-gpu=name,driver_version,memory.total,compute_cap"
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", query, "--format=csv"]
        _, output = run.call("nvidia-smi", command, "machine.txt", 30)
        for line in output.splitlines()[1:]:
            run.say(f"- {line}")
    doctor = [sys.executable, "-m", "arrowdev", "doctor"]
    run.call("doctor", doctor, "machine.txt", LIMITS_S["machine"])


def files_of_the_suite(wanted):
    """The files in the order in which they run."""
    names = [path.stem.removeprefix("test_") for path in SUITE.glob("test_*.py")]
    names = [name for name in names if re.search(wanted, name)]
    return sorted(names, key=lambda name: (name not in FIRST, [*FIRST, name].index(name), name))


def suite(run, arguments):
    run_files(run, "suite", files_of_the_suite(arguments.files))


def queues(run, arguments):
    """What waits on streams, with fewer hardware queues than streams: a wait of arrowdev's must
    not stand before the user's work."""
    names = [name for name in FEW_QUEUES if re.search(arguments.files, name)]
    run_files(run, "queues", names, CUDA_DEVICE_MAX_CONNECTIONS=str(N_QUEUES))


def run_files(run, step, names, **environment):
    """Each file in a process of its own: a fault breaks a process for good. xdist replaces a
    worker that a timeout has ended, so that the other tests of the file still run."""
    totals = dict.fromkeys(("passed", "failed", "errors", "skipped"), 0)
    failures = []
    end = time.monotonic() + LIMITS_S[step]
    worker = ["-n", "1", "--max-worker-restart", "8"] if has("xdist") else []
    for name in names:
        status, output = run.call(
            f"{step}, {name}",
            [
                *(sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider"),
                *("-c", str(ROOT / "pyproject.toml"), *worker, str(SUITE / f"test_{name}.py")),
            ],
            f"{step}.log",
            min(FILE_LIMIT_S, end - time.monotonic()),
            ARROWDEV_SUITE="cuda",
            **environment,
        )
        last = [line for line in output.splitlines() if " in " in line and line[-1] in "s)"]
        for n, what in re.findall(r"(\d+) (passed|failed|errors?|skipped)", (last or [""])[-1]):
            totals["errors" if what == "error" else what] += int(n)
        failures += re.findall(r"^(?:FAILED|ERROR) .*", output, re.M)
        if status not in (0, None) and not last:
            failures.append(f"test_{name}.py did not come to its end")
    run.say(f"- {step}: " + ", ".join(f"{n} {what}" for what, n in totals.items()))
    shown = [re.sub(r" \S*/tests/gpu_cuda/", " ", line)[:180] for line in failures]
    if shown:
        run.say("```\n" + "\n".join(shown[:60]) + "\n```", is_good=False)


def docs(run, arguments):
    """The examples that are marked with `needs: GPU`."""
    run.call(
        "examples of the documentation",
        [
            *(sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider"),
            *("-c", str(ROOT / "pyproject.toml"), "-k", "example_runs and (devices or libraries)"),
            str(ROOT / "tests" / "docs" / "test_docs.py"),
        ],
        "docs.log",
        LIMITS_S["docs"],
    )


def figures(run, arguments):
    benchmarks, file = ROOT / "benchmarks", run.out / "devices.json"
    devices = [
        *(sys.executable, str(benchmarks / "run.py"), "--devices", "--repeats", "15"),
        *("--only", "^GPU", "--json", file),
    ]
    run.call("benchmarks/run.py --devices", devices, "figures.txt", LIMITS_S["figures"])
    if file.exists():
        show = [sys.executable, str(benchmarks / "gpu.py"), "--show", file]
        _, output = run.call("the same in GB/s", show, "figures.txt", 60)
        run.say(f"```\n{output.strip()[:7000]}\n```")


STEPS = {step.__name__: step for step in (build, machine, suite, queues, figures, docs)}


def finish(run):
    run.say(f"\n{'all is well' if run.is_good else 'NOT ALL IS WELL'}")
    (run.out / "report.md").write_text("\n".join(run.lines) + "\n", encoding="utf-8")
    return 0 if run.is_good else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for what was found")
    parser.add_argument("--minutes", type=float, default=9, help="for all steps together")
    parser.add_argument("--only", default=",".join(STEPS), help="names of steps, by commas")
    parser.add_argument("--files", default="", help="files of the suite that match")
    parser.add_argument("--installed", action="store_true", help="import arrowdev as it is found")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.out = arguments.out.resolve()
    run = Run(arguments.out, 60 * arguments.minutes)
    if arguments.installed:
        run.environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    for name in arguments.only.split(","):
        run.say(f"\n## {name}\n")
        STEPS[name](run, arguments)
    return finish(run)


if __name__ == "__main__":
    sys.exit(main())

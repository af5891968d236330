"""``python -m arrowdev trace``: a program is run and its trace written, each in a process."""

import json
import os
import pathlib
import py_compile
import subprocess
import sys
import zipapp

import chrome_trace
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPIES = """\
import sys
import arrowdev as ad
import beside
ad.array(memoryview(bytes(16)).cast("q")[::-1])
print(sys.argv[1:], __name__)
"""


@pytest.fixture
def traced(tmp_path):
    """Run the command in a folder that has the program app.py."""
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "app.py").write_text(COPIES)

    def run(*arguments, more=""):
        (tmp_path / "app.py").write_text(COPIES + more)
        return subprocess.run(
            [sys.executable, "-m", "arrowdev", "trace", *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def copies_of(file):
    data = json.loads(file.read_text("utf-8"))
    chrome_trace.check(data)
    return [(copy["name"], copy["args"]["line"]) for copy in chrome_trace.slices(data, "copy")]


@pytest.mark.parametrize("program", [["app.py"], ["-m", "app"]], ids=["script", "module"])
def test_program_has_its_arguments_and_its_trace(traced, tmp_path, program):
    done = traced("-o", "t.json", *program, "-o", "x", "--html", "y")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['-o', 'x', '--html', 'y'] __main__\n"
    assert "1 copy of 16 bytes" in done.stderr
    assert copies_of(tmp_path / "t.json") == [("copy 16 bytes", "app.py:4 in <module>")]
    assert not (tmp_path / "y").exists()


def test_page_or_file_of_its_own_name(traced, tmp_path):
    assert traced("--html", "page.html", "app.py").returncode == 0
    assert '"copy 16 bytes"' in (tmp_path / "page.html").read_text("utf-8")
    assert not (tmp_path / "trace.json").exists()
    assert traced("app.py").returncode == 0
    assert len(copies_of(tmp_path / "trace.json")) == 1


@pytest.mark.parametrize(
    ("end", "status", "message"),
    [
        ("sys.exit(7)", 7, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('the end')", 1, "the end\n"),
        ("1 / 0", 1, 'Traceback (most recent call last):\n  File "{program}", line '),
    ],
)
def test_exit_status_is_that_of_the_program(traced, tmp_path, end, status, message):
    done = traced("app.py", more=end)
    message = message.format(program=tmp_path / "app.py")
    assert done.returncode == status and done.stderr.startswith(message)
    assert len(copies_of(tmp_path / "trace.json")) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a program to run"),
        (["-m"], "name a program to run"),
        (["--from", "t.json"], "--from makes a page"),
        (["--from", "t.json", "--html", "p", "app.py"], "--from makes a page"),
        (["--from", "t.json", "--html", "p", "-o", "x"], "--from makes a page"),
        (["-o", "p", "--html", "p", "app.py"], "are one file, p; name another one"),
        (["-o", "p", "--html", "./a/../p", "app.py"], "are one file, p; name another one"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(traced, arguments, message):
    done = traced(*arguments)
    assert done.returncode == 2 and message in done.stderr


def test_file_or_program_that_is_not_there(traced, tmp_path):
    done = traced("-o", "missing/t.json", "app.py")
    assert done.returncode == 1 and "trace: [Errno 2] No such file" in done.stderr
    done = traced("missing.py")
    assert done.returncode == 1
    assert done.stderr.startswith("FileNotFoundError: [Errno 2] No such file or directory")
    done = traced("-m", "missing")
    assert done.returncode == 1 and done.stderr.startswith("ImportError: No module named missing")


@pytest.mark.parametrize("option", ["-o", "--html"])
def test_file_that_cannot_be_written_is_refused_before_the_program_runs(traced, option):
    done = traced(option, "missing/file", "app.py")
    assert done.returncode == 1 and "trace: [Errno 2] No such file" in done.stderr
    assert done.stdout == ""


def test_summary_is_told_though_the_file_is_lost(traced, tmp_path):
    lost = "import os, shutil; shutil.rmtree('out')"
    (tmp_path / "out").mkdir()
    done = traced("-o", "out/t.json", "app.py", more=lost)
    assert done.returncode == 1 and "trace: [Errno 2] No such file" in done.stderr
    assert "1 copy of 16 bytes" in done.stderr


def test_files_are_in_the_folder_of_the_command(traced, tmp_path):
    (tmp_path / "other").mkdir()
    done = traced(
        "-o", "t.json", "--html", "p.html", "app.py", more="import os; os.chdir('other')"
    )
    assert done.returncode == 0, done.stderr
    assert len(copies_of(tmp_path / "t.json")) == 1
    assert '"copy 16 bytes"' in (tmp_path / "p.html").read_text("utf-8")
    assert list((tmp_path / "other").iterdir()) == []


MAIN = """
import atexit, pickle, threading
import __main__

class Value:
    pass

def told(who):
    same = type(pickle.loads(pickle.dumps(Value()))) is Value
    print(who, same, __main__ is sys.modules["__main__"], __main__.Value is Value, __name__)

def late():
    threading.main_thread().join()
    told("thread")

atexit.register(told, "exit")
threading.Thread(target=late).start()
told("script")
"""


@pytest.mark.parametrize("program", [["app.py"], ["-m", "app"]], ids=["script", "module"])
def test_threads_and_exit_handlers_see_the_program(traced, program):
    done = traced(*program, more=MAIN)
    assert done.returncode == 0, done.stderr
    told = [line.split(maxsplit=1) for line in done.stdout.splitlines()[1:]]
    assert told == [[who, "True True True __main__"] for who in ("script", "thread", "exit")]


TOLD = """
main = sys.modules["__main__"]
print(main.__file__, __file__ == main.__file__, sys.path[0], __package__ or "",
      globals().get("__cached__", "none"), __spec__ and __spec__.name)
"""


def program_of(kind, folder):
    """A folder, an archive, a package or a compiled file with the same program."""
    (folder / "made").mkdir()
    for name in ("__init__.py", "beside.py"):
        (folder / "made" / name).write_text("")
    (folder / "made" / "__main__.py").write_text(COPIES + TOLD)
    if kind == "archive":
        zipapp.create_archive(folder / "made", folder / "made.pyz")
        return ["made.pyz"]
    if kind == "compiled":
        compiled = folder / "made.pyc"
        py_compile.compile(str(folder / "made" / "__main__.py"), str(compiled))
        return ["made.pyc"]
    return {"folder": ["made"], "package": ["-m", "made"]}[kind]


@pytest.mark.parametrize("kind", ["folder", "archive", "package", "compiled"])
def test_program_runs_as_python_runs_it(traced, tmp_path, kind):
    program = program_of(kind, tmp_path)
    plain = subprocess.run(
        [sys.executable, *program, "x"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert plain.returncode == 0, plain.stderr
    done = traced(*program, "x")
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert len(copies_of(tmp_path / "trace.json")) == 1


THREADS = """
import concurrent.futures, threading, time
def late():
    threading.main_thread().join()
    ad.array(memoryview(bytes(32)).cast("q")[::-1])
threading.Thread(target=late).start()
executor = concurrent.futures.ThreadPoolExecutor(1)
executor.submit(time.sleep, 0.2)
executor.submit(lambda: ad.array(memoryview(bytes(64)).cast("q")[::-1]))
"""


def test_threads_that_run_on_are_waited_for(traced, tmp_path):
    done = traced("app.py", more=THREADS)
    assert done.returncode == 0, done.stderr
    names = {name for name, _ in copies_of(tmp_path / "trace.json")}
    assert names == {"copy 16 bytes", "copy 32 bytes", "copy 64 bytes"}


@pytest.mark.parametrize(
    ("more", "status", "stdout", "stderr"),
    [
        ("sys.excepthook = lambda *found: print(found[1])\nraise ValueError('x')", 1, "x\n", ""),
        ("sys.stdout.flush()\nsys.stderr.close()", 0, "", ""),
        ("sys.stderr = object()", 120, "", ""),  # it has no flush()
        ("sys.exit(type('E', (), {'__str__': lambda self: 1 / 0})())", 1, "", "1 copy of 16"),
        ("import builtins; print(__builtins__ is builtins)", 0, "True\n", "1 copy of 16"),
    ],
    ids=["excepthook", "closed", "replaced", "exit", "builtins"],
)
def test_end_is_that_of_python(traced, tmp_path, more, status, stdout, stderr):
    done = traced("-o", "t.json", "app.py", more=more)
    assert (done.returncode, done.stdout) == (status, "[] __main__\n" + stdout)
    assert stderr in done.stderr and "Traceback" not in done.stderr
    assert copies_of(tmp_path / "t.json")


@pytest.mark.parametrize("option", ["-o", "--html"])
def test_program_is_not_overwritten(traced, tmp_path, option):
    (tmp_path / "link").symlink_to("app.py")
    for name in ("app.py", "link"):
        done = traced(option, name, "app.py")
        assert done.returncode == 2 and "app.py would be overwritten" in done.stderr
        assert (tmp_path / "app.py").read_text() == COPIES


def test_trace_is_not_overwritten_by_its_page(traced, tmp_path):
    (tmp_path / "t.json").write_text("{}")
    done = traced("--html", "t.json", "--from", "t.json")
    assert done.returncode == 2 and "t.json would be overwritten" in done.stderr
    assert (tmp_path / "t.json").read_text() == "{}"


def test_trace_of_the_environment_is_refused(traced, monkeypatch):
    monkeypatch.setenv("ARROWDEV_TRACE", "other.json")
    done = traced("app.py")
    assert done.returncode == 2 and "ARROWDEV_TRACE is set" in done.stderr

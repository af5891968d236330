"""Builds arrowdev._core and arrowdev.testing._device; everything else is in pyproject.toml.

Environment variables, for developers and CI:

ARROWDEV_WERROR=1             all warnings, as errors
ARROWDEV_SANITIZE=address,... build with -fsanitize=address,... and with debug text
ARROWDEV_DEBUG=1              with the debug text that gdb and valgrind read (-g)
"""

import os
import re
import shutil
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


def is_set(name):
    return os.environ.get(name, "0") not in ("", "0")


FLAGS = ["-std=gnu11", "-fvisibility=hidden", "-O2", "-fno-plt", "-Wall"]
# CPython's own flags may ask for debug text, which is three quarters of such an extension.
FLAGS += ["-g" if is_set("ARROWDEV_DEBUG") else "-g0"]
LINK_FLAGS = []
if is_set("ARROWDEV_WERROR"):
    FLAGS += ["-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
SANITIZE = os.environ.get("ARROWDEV_SANITIZE", "")
if SANITIZE:
    FLAGS += [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    FLAGS += ["-g", "-O1", "-UNDEBUG"]
    LINK_FLAGS += [f"-fsanitize={SANITIZE}"]


class BuildExt(build_ext):
    def build_extensions(self):
        version = self.distribution.get_version()
        for ext in self.extensions:
            ext.define_macros.append(("ARROWDEV_VERSION", f'"{version}"'))
        # setuptools compares the time stamps of files, not the flags.
        stamp = Path(self.build_temp, "flags")
        flags = repr((FLAGS, LINK_FLAGS, version))
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != flags:
            self.force = True
        super().build_extensions()
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(flags, encoding="utf-8")
        for ext in self.extensions:
            self.copy_into_checkout(ext)

    def copy_into_checkout(self, ext):
        """Let `pip install . && python -m arrowdev` work inside the checkout.

        `python -m` puts the current folder first on sys.path, so there it
        finds the checkout's own package, which needs the extensions as well.
        """
        if self.inplace:
            return
        built = Path(self.get_ext_fullpath(ext.name))
        target = Path(__file__).resolve().parent / self.get_ext_filename(ext.name)
        try:
            # Renamed into place: a running process may have the old one mapped.
            fresh = target.with_suffix(".new")
            shutil.copy2(built, fresh)
            fresh.replace(target)
        except OSError:
            pass  # a read-only checkout: a convenience less


def readme_of_index():
    """README.md with links and pictures of the repository: an index page has none beside it."""
    source = re.search(r'^Source = "(.*)"$', Path("pyproject.toml").read_text("utf-8"), re.M)[1]
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{source}/raw/main/", text)
    return re.sub(r"\]\((?!https?:|#)", f"]({source}/blob/main/", text)


def extension(name, sources):
    return Extension(
        name,
        sources=sorted(sources),
        depends=[
            "setup.py",
            *sorted(glob("csrc/**/*.[chdi]*", recursive=True)),
            *sorted(glob("arrowdev/include/*.h")),
        ],
        include_dirs=["csrc"],
        # Before glibc 2.34 these are libraries of their own.
        libraries=["dl", "m", "pthread"],
        extra_compile_args=FLAGS,
        extra_link_args=LINK_FLAGS,
    )


TEST_DEVICE = set(glob("csrc/test_device/*.c"))
PRODUCT = set(glob("csrc/**/*.c", recursive=True)) - TEST_DEVICE

setup(
    long_description=readme_of_index(),
    long_description_content_type="text/markdown",
    ext_modules=[
        extension("arrowdev._core", PRODUCT),
        extension("arrowdev.testing._device", TEST_DEVICE),
    ],
    cmdclass={"build_ext": BuildExt},
)

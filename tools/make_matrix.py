"""Draws docs/matrix.svg anew: python tools/make_matrix.py

It is what `python -m arrowdev matrix --svg` writes about host memory here, without the reasons
that show under the mouse, in colours that are legible on white and on black. Install the peers
first.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "docs" / "matrix.svg"
GREY = "#768390"


def main():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "matrix.svg"
        options = ["--only", "all", "--device", "cpu", "--svg", file]
        command = [sys.executable, "-W", "ignore", "-m", "arrowdev", "matrix", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        picture = file.read_text(encoding="utf-8")
    picture = re.sub(r"@media \(prefers-color-scheme: dark\) \{.*?\n\}\n", "", picture, flags=re.S)
    picture = re.sub(r"fill: #(1f2328|59636e)", f"fill: {GREY}", picture)
    picture = re.sub(r"<title>.*?</title>", "", picture, flags=re.S)
    TARGET.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()

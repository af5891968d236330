"""Where SYCL finds Intel's CPU runtime.

SYCL finds its drivers through an OpenCL loader, which reads OCL_ICD_VENDORS when
it first lists devices. The .icd files in Intel's wheel name a folder of the
machine that built it, so this module writes correct ones to a folder. (There
are two such loaders: where the system's loader is in the process already, SYCL
uses that one, which ignores OCL_ICD_FILENAMES.)
"""

import os
import shutil
import sys
from pathlib import Path

DRIVER = Path(sys.prefix, "lib", "libintelocl.so")


def variables(folder):
    """Variables to add to the environment. Fills `folder` with .icd files if it is given."""
    if not DRIVER.exists() or {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"} & os.environ.keys():
        return {}
    Path(folder, "intel.icd").write_text(f"{DRIVER}\n")
    for icd in Path("/etc/OpenCL/vendors").glob("*.icd"):
        shutil.copy(icd, folder)
    return {"OCL_ICD_VENDORS": str(folder)}

"""Where SYCL finds Intel's CPU runtime.

SYCL finds its drivers through an OpenCL loader, which reads OCL_ICD_VENDORS when
it first looks for devices. The .icd files in Intel's wheel name a folder of the
machine on which it was built, so a folder with right ones is made here. (There
are two such loaders: where the system's is in the process already, SYCL uses
that, and it knows no OCL_ICD_FILENAMES.)
"""

import os
import shutil
import sys
from pathlib import Path

DRIVER = Path(sys.prefix, "lib", "libintelocl.so")


def variables(folder):
    """What to add to the environment; `folder` is filled with .icd files where it is named."""
    if not DRIVER.exists() or {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"} & os.environ.keys():
        return {}
    Path(folder, "intel.icd").write_text(f"{DRIVER}\n")
    for icd in Path("/etc/OpenCL/vendors").glob("*.icd"):
        shutil.copy(icd, folder)
    return {"OCL_ICD_VENDORS": str(folder)}

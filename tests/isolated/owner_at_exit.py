"""Memory that is alive when the interpreter exits is released, as a memoryview's is."""

import common
from common import ReportingOwner

held = [
    common.ad.tensor(ReportingOwner("the owner of a tensor")),
    common.ad.array(ReportingOwner("the owner of an array")),
    common.ad.array(ReportingOwner("the owner of an exported array")).__arrow_c_array__(),
]
common.end()

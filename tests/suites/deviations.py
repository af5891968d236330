"""The versions of the libraries whose tests run through arrowdev, and what differs on purpose.

DEVIATIONS: {test file: {reason: tests}}. A test with parameters stands with all of them or by its
id. Each is expected to fail, strictly, with the version named. `tools/make_conformance.py` writes
the list into docs/conformance.md.
"""

VERSIONS = {"numpy": "2.4.6", "pyarrow": "26.0.1", "pandas": "3.1.1", "dpnp": "0.20.0"}

NO_CAST = (
    "arrowdev answers a requested schema if the memory is the same. Otherwise the data keep their "
    "type, and the consumer casts"
)
PYARROW_CASTS_THE_WRONG_NAME = (
    "the data keep their type if values would have to change, and pyarrow's cast of them fails "
    "with an AttributeError (it calls `array.cast` of its function `array`)"
)
LEGACY_COPY = "legacy capsules honour `copy=`"
COPY_IS_A_BOOL = "`copy=` of another type is a TypeError"
NO_VERSION = (
    "NumPy reads a dict without `version`, which the array interface requires. arrowdev refuses it"
)

DEVIATIONS = {
    "test_numpy_dlpack": {
        COPY_IS_A_BOOL: ["TestDLPack::test_dunder_dlpack_copy"],
        "elements in the other byte order are copied into the order of the machine": [
            "TestDLPack::test_invalid_byte_swapping"
        ],
    },
    "test_numpy_buffers": {
        NO_VERSION: [
            "TestArrayInterface::test_scalar_interface[val0-iface0-0.5]",
            "TestArrayInterface::test_scalar_interface[val3-iface3-0.5]",
            "TestArrayInterface::test_scalar_interface[val5-iface5-expected5]",
            "TestArrayInterface::test_scalar_interface[val7-iface7-0.5]",
            "test_interface_nullptr",
        ],
        "a typestr that cannot be read is a ValueError, NumPy's is a TypeError": [
            "test_array_interface_unicode_typestr"
        ],
        "`base` is the arrowdev tensor, which keeps the object alive": [
            "TestFromBuffer::test_array_base[obj0]"
        ],
        "the stride of a dimension of length 1, which no element uses, is another one": [
            "TestNewBufferProtocol::test_relaxed_strides"
        ],
        "NumPy's record of the exported buffer is not used": [
            "TestNewBufferProtocol::test_error_if_stored_buffer_info_is_corrupted[obj0]"
        ],
    },
    "test_numpy_scalars": {
        "the buffer format of all integers of 64 bits is `l` or `L`": [
            "TestScalarPEP3118::test_scalar_code_and_properties[q]",
            "TestScalarPEP3118::test_scalar_code_and_properties[Q]",
        ],
    },
    "test_pyarrow_dlpack": {
        LEGACY_COPY: ["test_dlpack_legacy_capsule_copy_not_supported"],
        "bools in bits are copied into bytes unless copy=False": ["test_dlpack_not_supported"],
        "an object without any protocol is a TypeError": ["test_from_dlpack_no_dlpack_method"],
    },
    "test_pyarrow_array": {PYARROW_CASTS_THE_WRONG_NAME: ["test_c_array_protocol"]},
    "test_pyarrow_capsules": {
        NO_CAST: [
            "test_roundtrip_batch_reader_capsule_requested_schema",
            "test_roundtrip_chunked_array_capsule_requested_schema",
        ],
    },
    "test_pyarrow_table": {
        PYARROW_CASTS_THE_WRONG_NAME: ["test_chunked_array_c_array_interface"],
    },
    "test_pandas_frame": {NO_CAST: ["test_dataframe_to_arrow"]},
    "test_pandas_series": {
        "pandas takes the name of a Series from the pyarrow object itself": [
            "test_series_from_arrow_pyarrow_name"
        ]
    },
    "test_dpnp_dlpack": {COPY_IS_A_BOOL: ["TestDLPack::test_wrong_copy"]},
    "test_dpnp_tensor_dlpack": {
        LEGACY_COPY: ["test_dlpack_kwargs"],
        "a copy of read-only memory may be written": [
            "test_versioned_dlpack_capsule",
            "test_dlpack_capsule_readonly_array_to_kdlcpu",
        ],
        "the device type in `dl_device=` is an int, as the array API says; dpnp takes names too": [
            "test_dlpack_dl_device"
        ],
        "host memory without elements has no address": ["test_dlpack_size_0_on_kdlcpu"],
    },
}


def reason_of(file, test):
    """The reason why a test of `file` is expected to fail, or None."""
    for reason, tests in DEVIATIONS.get(file, {}).items():
        if test in tests or test.partition("[")[0] in tests:
            return reason
    return None

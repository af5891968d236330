"""Names of distributions that are not those of the modules."""

DISTRIBUTIONS = {
    "PIL": "pillow",
    "arro3": "arro3-core",
    "geoarrow": "geoarrow-pyarrow",
    "ibis": "ibis-framework",
    "lance": "pylance",
    "paddle": "paddlepaddle",
    "tensorflow": "tensorflow-cpu",
    "tvm_ffi": "apache-tvm-ffi",
    "warp": "warp-lang",
}
MODULES = {distribution: module for module, distribution in DISTRIBUTIONS.items()}

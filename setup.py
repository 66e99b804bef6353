"""Build of the native kernel, which is optional: it needs a C++ compiler.

The settings of the package are in pyproject.toml. ``python setup.py build_ext --inplace`` builds
only the kernel.
"""

from setuptools import Extension, setup

FOLDER = "src/creinn/native"

# OpenMP is not linked. The kernel uses the OpenMP of torch, which is loaded first, and its threads.
setup(
    ext_modules=[
        Extension(
            "creinn.native._product",
            [f"{FOLDER}/product.cpp", f"{FOLDER}/prediction.cpp"],
            depends=[f"{FOLDER}/tile.inc", f"{FOLDER}/project.inc"],
            extra_compile_args=[
                "-std=c++17",
                "-O3",
                "-ffp-contract=fast",
                "-fno-strict-aliasing",
                "-fopenmp",
            ],
            language="c++",
            optional=True,
        )
    ]
)

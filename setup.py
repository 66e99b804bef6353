"""The native product, built where a C++ compiler is; without one the package installs all the same, as pure Python.

Settings of the package are in pyproject.toml. ``python setup.py build_ext --inplace`` builds the library alone.
"""

from setuptools import Extension, setup

FOLDER = "src/creinn/native"

# OpenMP's functions are not linked: they are those of torch, which is loaded before, so that both share their threads.
setup(
    ext_modules=[
        Extension(
            "creinn.native._product",
            [f"{FOLDER}/product.cpp"],
            depends=[f"{FOLDER}/tile.inc"],
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

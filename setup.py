"""Builds the compiled codec. Without a C compiler or Cython the same sources run interpreted, slower."""

from pathlib import Path

from setuptools import Extension, setup

#: The hot loops (DESIGN.md, idea 6): plain Python modules typed by the .pxd file beside them.
COMPILED = ["ottla.wire.codec", "ottla.wire.hashing", "ottla.wire.record_codec", "ottla.wire.record_writer"]


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    sources = [(name, Path("src", *name.split(".")).with_suffix(".py")) for name in COMPILED]
    modules = [Extension(name, [str(path)], extra_compile_args=["-O3"]) for name, path in sources if path.exists()]
    built: list[Extension] = cythonize(modules, language_level=3, compiler_directives={"annotation_typing": False})
    for module in built:
        module.optional = True  # cythonize() makes new ones without it
    return built


setup(ext_modules=extensions())

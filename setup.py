"""Builds the compiled codec. Without a C compiler or Cython the same sources run interpreted, slower."""

import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

#: The hot loops (DESIGN.md, idea 6): plain Python modules typed by the .pxd file beside them.
COMPILED = [
    "ottla.log.cleaner.kept_records",
    "ottla.log.cleaner.offset_map",
    "ottla.log.index_order",
    "ottla.wire.batch_walk",
    "ottla.wire.codec",
    "ottla.wire.hashing",
    "ottla.wire.record_codec",
    "ottla.wire.record_writer",
    "ottla.client.producer.delivery",
    "ottla.client.producer.intake",
]


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


class BuildWithExample(build_py):  # type: ignore[misc]
    """Puts the demo's pipeline beside the demo: installed from a wheel there is no examples/ to take it from."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            shutil.copy(Path("examples", "wordcount.py"), Path(self.build_lib, "ottla", "cli", "demo"))


setup(ext_modules=extensions(), cmdclass={"build_py": BuildWithExample})

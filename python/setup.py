"""The wheel, built by `make wheel` from the staged folder: modules and library in vitrine/, an installed tree in tree/."""
import os

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    """No module is compiled against a Python, so one wheel is for all; the platform is that of the program inside."""

    def get_tag(self):
        return "py3", "none", os.environ["VITRINE_WHEEL_PLATFORM"]


class Binary(Distribution):
    """Tells setuptools that the package belongs to one kind of machine."""

    def has_ext_modules(self):
        return True


def tree():
    """Files of tree/, by the folder that they go to below the environment's own. A wheel has no links."""
    for folder, _, names in os.walk("tree"):
        files = [f for f in (os.path.join(folder, n) for n in names) if not os.path.islink(f)]
        if files:
            yield os.path.relpath(folder, "tree"), files


with open("README.md", encoding="utf-8") as f:
    readme = f.read()
setup(
    name="vitrine",
    version=os.environ["VITRINE_WHEEL_VERSION"],
    description="An LLM inference engine for CPUs and NVIDIA GPUs that shows its work",
    long_description=readme,
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    classifiers=["License :: OSI Approved :: Apache Software License", "Operating System :: POSIX :: Linux",
                 "Programming Language :: C", "Programming Language :: Python :: 3", "Typing :: Typed"],
    python_requires=">=3.9",
    packages=["vitrine"],
    package_data={"vitrine": ["py.typed", "libvitrine.so.0"]},
    data_files=list(tree()),
    cmdclass={"bdist_wheel": Wheel},
    distclass=Binary,
    zip_safe=False,
)

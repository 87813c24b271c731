"""The container images, built on a machine that reaches no registry of images.

Each image is a Dockerfile under ``images/`` that any builder takes, with ``BASE_IMAGE`` as an argument. What a registry
would give is made here: the base, a root file system of Debian packages (``rootfs``), and the context, with all Python
packages as wheels (``wheels``, ``context``). ``build`` puts them together with buildah.

    python -m tools.images build base operator
    python -m tools.images build job --directory examples/airport_weather --tag localhost/airport-weather:dev
"""

from tools.images.build import BASE, OPERATOR, build_base, build_job, build_operator, image_id, is_built, tag

__all__ = ["BASE", "OPERATOR", "build_base", "build_job", "build_operator", "image_id", "is_built", "tag"]

"""The container images, built on a machine that reaches no registry of images.

Each image is a Dockerfile under ``images/`` for any builder, with ``BASE_IMAGE`` as an argument. This package makes the
parts that a registry would offer. The base is a root file system of Debian packages (``rootfs``). The context has all
Python packages as wheels (``wheels``, ``context``). ``build`` combines them with buildah.

    python -m tools.images build base operator
    python -m tools.images build job --directory examples/airport_weather --tag localhost/airport-weather:dev
"""

from tools.images.build import BASE, OPERATOR, build_base, build_job, build_operator, image_id, is_built, tag

__all__ = ["BASE", "OPERATOR", "build_base", "build_job", "build_operator", "image_id", "is_built", "tag"]

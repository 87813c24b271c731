"""``python -m tools.images``: build the container images.

::

    python -m tools.images build base operator
    python -m tools.images build job --directory DIR --tag NAME
    python -m tools.images release               build penstock/base and penstock/operator with docker, podman or buildah
    python -m tools.images context base          for another builder than buildah
    python -m tools.images debian --fresh        make the root file system again, with the latest updates
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tools.errors import ToolError
from tools.images import build, context
from tools.images.platforms import parse_platforms


def main(arguments: list[str] | None = None) -> int:
    """Run one verb and return the exit code, which is 1 if the verb failed."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except ToolError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 1
    return 0


def _build(options: argparse.Namespace) -> None:
    for image in options.image:
        began = time.monotonic()
        if image == "job":
            if options.directory is None or options.tag is None:
                raise ToolError("a job's image needs a directory and a name", remedy="pass --directory and --tag")
            name = build.build_job(options.directory, tag=options.tag, base_image=options.base_image or build.BASE)
        elif image == "base":
            name = build.build_base(tag=options.tag or build.BASE, base_image=options.base_image)
        else:
            name = build.build_operator(tag=options.tag or build.OPERATOR, base_image=options.base_image)
        print(f"{name}: {build.size(name) / 1e6:.0f} MB ({time.monotonic() - began:.0f} s)")


def _release(options: argparse.Namespace) -> None:
    for name in build.build_release(options.builder, options.registry, parse_platforms(options.platforms)):
        print(name)


def _context(options: argparse.Namespace) -> None:
    print(context.make(options.image))


def _debian(options: argparse.Namespace) -> None:
    print(build.debian(fresh=options.fresh))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.images", description="Build the container images.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    make = verbs.add_parser("build", help="build images with buildah")
    make.add_argument("image", nargs="+", choices=["base", "operator", "job"])
    make.add_argument("--tag", help="the image's name (localhost/penstock-base:dev, localhost/penstock-operator:dev)")
    make.add_argument("--base-image", help="the image in FROM (default: a Debian root file system made here)")
    make.add_argument("--directory", type=Path, help="the directory of the job")
    make.set_defaults(run=_build)

    release = verbs.add_parser(
        "release", help="build the base and the operator's image with the names that the chart uses"
    )
    release.add_argument(
        "--builder", default="", choices=["", "docker", "podman", "buildah"], help="default: the first that works"
    )
    release.add_argument("--registry", default=build.REGISTRY, help="first part of the names (default: %(default)s)")
    release.add_argument(
        "--platforms", default="", help="build for these, such as linux/amd64,linux/arm64 (default: this machine's)"
    )
    release.set_defaults(run=_release)

    only = verbs.add_parser("context", help="make a build context for another builder; print its directory")
    only.add_argument("image", choices=["base", "operator"])
    only.set_defaults(run=_context)

    debian = verbs.add_parser("debian", help="make the root file system; print its image's name")
    debian.add_argument("--fresh", action="store_true", help="make it again, with the latest updates")
    debian.set_defaults(run=_debian)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The flows of first deployments, whose masters check their own programs before the release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.scenarios.scenario import Scenario, at, edit, equal, gone, pods_fit, rejected, running
from tests.unit.operator.world.world import World, flinkjob

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSED = Image(check={"ok": False, "problems": [{"code": "USER_CODE", "message": "no module named 'pandas'"}]})
HANGS = Image(check_hangs=True)
CHECKING = at("Check", standby=True)


def _first(name: str, ended: Callable[[World], bool], image: Image | None = None, **more: Any) -> Scenario:
    """Return the flow of a first deployment with this image."""
    images = {} if image is None else {"job:1": image}
    return Scenario(
        f"first-{name}", lambda w: w.apply(flinkjob()), ended, deployed=False, images=images, exact=True, **more
    )


def pods(world: World) -> list[str]:
    """Return the names of all pods of the job."""
    return [p["metadata"]["name"] for p in world.cluster.select("Pod", None, {"penstock.dev/job": "weather"})]


def _was_refused(world: World) -> bool:
    return rejected(world) and "running" not in world.status() and pods(world) == []


def _nothing_ran(world: World) -> None:
    equal((world.storage.leaders, world.storage.released), ({}, {}))


def _idle(world: World) -> bool:
    return "operation" not in world.status() and pods(world) == [] and "running" not in world.status()


def _lose_storage(world: World) -> None:
    world.storage.down = "no response"


FIRST_SCENARIOS = [
    _first("refused", _was_refused, REFUSED, empty_starts=0, check=_nothing_ran),
    _first(
        "refused-and-corrected",
        lambda w: running(w, image="job:2"),
        REFUSED,
        then=((_was_refused, edit(image="job:2")),),
    ),
    _first("of-a-program-that-ends-its-check", _was_refused, Image(check_crashes=True), empty_starts=0),
    _first("of-an-older-engine", lambda w: running(w, image="job:1"), Image(checks_itself=False)),
    _first("of-an-engine-without-standby", lambda w: running(w, image="job:1"), Image(supports_standby=False)),
    _first(
        "edited-while-checking", lambda w: running(w, image="job:2"), HANGS, then=((CHECKING, edit(image="job:2")),)
    ),
    _first(
        "suspended-while-checking",
        _idle,
        HANGS,
        then=((CHECKING, edit(job={"state": "suspended"})),),
        empty_starts=0,
        check=_nothing_ran,
    ),
    _first("deleted-while-checking", gone, HANGS, then=((CHECKING, lambda w: w.delete()),), empty_starts=0),
    _first(
        "scaled-while-checking",
        lambda w: running(w, parallelism=4),
        then=((CHECKING, edit(job={"parallelism": 4})),),
        check=pods_fit,
    ),
    _first(
        "without-storage-for-its-release",
        lambda w: running(w) and not w.status()["running"].get("warm", False),
        then=((CHECKING, _lose_storage),),
        check=lambda w: equal(w.storage.released, {}),
    ),
]

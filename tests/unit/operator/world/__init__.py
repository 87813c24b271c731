"""A Kubernetes, an engine and a store in memory, on one clock, that can die or fail at any call.

`World` is the whole of it: it runs Deployments' pods, jobs in the masters' pods that read, checkpoint and commit, and
a sink that notices every record that is lost or repeated. The operator's loops run on it unchanged.
"""

from tests.unit.operator.world.faults import Fault, Killed
from tests.unit.operator.world.images import Image
from tests.unit.operator.world.world import World, flinkjob, flinksnapshot

__all__ = ["Fault", "Image", "Killed", "World", "flinkjob", "flinksnapshot"]

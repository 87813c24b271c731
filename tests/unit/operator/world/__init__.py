"""A simulated Kubernetes, engine and store in memory, on one clock, that can die or fail at any call.

`World` combines them. It runs the pods of Deployments, and the jobs in the pods of masters, which read, take
checkpoints and commit. A sink detects every record that is lost or repeated. The operator's loops run on the
world unchanged.
"""

from tests.unit.operator.world.faults import Fault, Killed
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.world import World, flinkjob, flinksnapshot

__all__ = ["Fault", "Image", "Killed", "World", "flinkjob", "flinksnapshot"]

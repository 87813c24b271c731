"""Every configuration key of Penstock: type, default, meaning.

Keys are flat. A setting that Flink has uses Flink's key. A setting that only Penstock has starts with `penstock.`.
Each module of this package has the keys of one subject. Other packages read them as `options.PARALLELISM`.
"""

from __future__ import annotations

from penstock.common.config.options.autoscaling import *
from penstock.common.config.options.checkpointing import *
from penstock.common.config.options.cluster import *
from penstock.common.config.options.execution import *
from penstock.common.config.options.leadership import *
from penstock.common.config.options.logs import *
from penstock.common.config.options.memory import *
from penstock.common.config.options.observability import *
from penstock.common.config.options.program import *
from penstock.common.config.options.rest import *
from penstock.common.config.options.restart import *
from penstock.common.config.options.security import *
from penstock.common.config.options.state import *
from penstock.common.config.options.storage import *
from penstock.common.config.options.timeouts import *

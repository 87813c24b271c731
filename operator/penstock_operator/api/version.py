"""Group and version of the kinds, named once.

`v1beta1` says what Kubernetes means by it (https://kubernetes.io/docs/reference/using-api/deprecation-policy/): fields are
added, and none is removed, renamed or given another meaning before a later version is served beside this one. The
policy for people, with storage version and conversion, is in `docs/operator/upgrade.md`.
"""

from __future__ import annotations

GROUP = "penstock.dev"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"

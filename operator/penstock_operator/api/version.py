"""Group and version of the kinds, defined in one place.

`v1beta1` has the meaning that Kubernetes gives it
(https://kubernetes.io/docs/reference/using-api/deprecation-policy/). New fields may be added. A field is removed,
renamed or given another meaning only after a later version is served as well. The policy for users is in
`docs/operator/upgrade.md`. It covers the storage version and the conversion between versions.
"""

from __future__ import annotations

GROUP = "penstock.dev"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"

"""An attacker on another network, and the parts of a cluster's processes that it can reach."""

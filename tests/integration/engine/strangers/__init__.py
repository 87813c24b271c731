"""Somebody on another network, and what they can reach of a cluster's processes."""

"""The way to a cluster: its masters, and the credentials of a connection."""

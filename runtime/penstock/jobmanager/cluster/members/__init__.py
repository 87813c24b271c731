"""The TaskManagers of a cluster: how they come, what is known of them, what they are asked."""

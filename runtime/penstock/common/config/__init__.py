"""Every configuration key with type, default and meaning; how the memory of a container is shared out."""

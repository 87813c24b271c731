"""Every configuration key with its type, default and meaning, and the division of a container's memory."""

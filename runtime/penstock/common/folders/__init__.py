"""Folders of this process or this user on the local disk."""

"""Secrets of this process: tokens and files that hold a secret."""

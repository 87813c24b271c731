"""Requests to outside services that are under way while the job goes on."""

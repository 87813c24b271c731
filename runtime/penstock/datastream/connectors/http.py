"""What a URL answers, asked again and again."""

from penstock.connectors.http.source import HttpPollSource

__all__ = ["HttpPollSource"]

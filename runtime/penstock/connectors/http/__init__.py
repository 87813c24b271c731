"""What a URL answers, as a source; see `source`. A main dependency, httpx, asks."""

"""The programs that a session stores: their bundles, and the fetch of bundles from servers and git repositories."""

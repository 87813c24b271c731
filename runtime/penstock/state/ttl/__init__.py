"""Time-to-live of state: its configuration, the expiry time of an entry, and handles that apply it."""

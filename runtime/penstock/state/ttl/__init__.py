"""Time-to-live of state: what a program may ask for, how an entry carries its expiry, handles that keep it."""

"""What people and programs read: phase, conditions, events. Never read back to decide anything but pauses."""

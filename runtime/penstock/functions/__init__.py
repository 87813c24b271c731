"""The interfaces of user code: function classes, the contexts they are opened with, and the contexts of each call."""

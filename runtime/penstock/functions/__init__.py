"""What the user's code is: function classes, what they are opened with, and what they are given at each call."""

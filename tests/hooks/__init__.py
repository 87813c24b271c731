"""Programs whose every hook can misbehave in every way, for tests of what a job's author is told then."""

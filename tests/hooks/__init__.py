"""Programs in which every hook can fail in every way, for tests of the errors that the author of a job sees."""

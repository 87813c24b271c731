"""One job from its start to its end: the JobMaster, its epochs, what is asked of it, how parallel it runs."""

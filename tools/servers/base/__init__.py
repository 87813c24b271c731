"""The parts that all servers share: one process with its log and signals, programs and users of this machine, the command line."""

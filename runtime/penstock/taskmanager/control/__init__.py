"""The control channel of the pipelined runner: commands and acks, sealed."""

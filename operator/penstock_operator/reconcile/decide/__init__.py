"""What to do next for one FlinkJob. Pure: no clock, no network, no cluster."""

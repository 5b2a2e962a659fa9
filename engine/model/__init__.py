"""One decoder for every family: what differs between families is data."""

"""What runs inside a peer's own process."""

"""How fast this machine is, and how fast other programs would be on it with the same model and the same chat."""

"""Page formats: how the K and V of a full page lie in memory. One small class a way of storing rows."""

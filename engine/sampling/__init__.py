"""From logits to the next token: what may be drawn, how likely, and the draw itself."""

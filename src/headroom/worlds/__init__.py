"""Places an agent acts in."""

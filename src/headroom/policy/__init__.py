"""Models: configuration, loading and sampling."""

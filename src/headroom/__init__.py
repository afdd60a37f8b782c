"""headroom: what GRPO does to an agent that was supervised first, as an executable study."""

__version__ = "0.1.0"

"""Demonstrations, supervised fine-tuning and GRPO."""

"""What a policy reads and writes: prompts, histories and the action grammar."""

"""Our HiddenRule: rooms, devices and one rule that is never told; pure Python, so that it runs anywhere."""

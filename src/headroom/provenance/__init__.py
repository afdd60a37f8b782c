"""Records of how every file was made, and the audit that walks them."""

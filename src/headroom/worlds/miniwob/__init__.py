"""MiniWoB++ task pages in a real Chromium (Liu et al. 2018, arXiv 1802.08802)."""

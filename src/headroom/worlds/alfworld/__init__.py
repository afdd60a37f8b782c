"""ALFWorld's text engine as a world; on scenes that are generated here it is called so, and never ALFWorld."""

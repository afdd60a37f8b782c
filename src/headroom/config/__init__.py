"""The configuration: pydantic models, and their resolution into one small file per job."""

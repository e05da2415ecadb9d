"""The system to allocate: topics, job types, costs and the goal, and its TOML file."""

"""The system that is allocated: topics, job types, costs and the goal, and its TOML file."""

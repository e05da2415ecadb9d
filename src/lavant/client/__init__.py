"""What runs at publishers and subscribers and never at the server: keys, and what they are needed for."""

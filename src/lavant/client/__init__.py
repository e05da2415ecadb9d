"""What runs at publishers, subscribers and consumers and never at the server: clients, keys, and what they need."""

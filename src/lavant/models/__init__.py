"""Models, pure: predictions for a network of stations from rates and variabilities, and coloured Petri nets."""

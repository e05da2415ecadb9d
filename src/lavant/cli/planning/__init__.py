"""Commands that predict: plan, model, petri, sim, sweep, size, reproduce."""

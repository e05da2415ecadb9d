"""Commands that predict: plan, model, sim, sweep, size, reproduce."""

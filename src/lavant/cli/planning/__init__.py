"""Commands that predict: plan, model, sim, sweep, reproduce."""

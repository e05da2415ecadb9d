"""The face: what people type and see."""

"""Jobs for applications: define, submit, look, wait, cancel."""

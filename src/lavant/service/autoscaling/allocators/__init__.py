"""Consumer allocators: worker processes of this machine, or pods of a Kubernetes cluster, behind one interface."""

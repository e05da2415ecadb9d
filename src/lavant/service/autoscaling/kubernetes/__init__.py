"""What is needed of a Kubernetes cluster, over its REST API: read a Deployment, set its number of replicas."""

"""Reading and writing manifests: YAML with comments preserved, JSON, and objects of the Kubernetes client."""

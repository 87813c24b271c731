"""The JSON schemas of the kinds, the CRDs and the reference that are generated from them, and the shapes of Kubernetes' own fields."""

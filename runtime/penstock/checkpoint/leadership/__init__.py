"""Leadership: only one leader acts. The package has claims, the rule for manifests that count, and a test of the store's guarantee."""

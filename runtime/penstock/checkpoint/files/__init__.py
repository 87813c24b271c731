"""The content of a job's folder in storage: names, manifests, state files, checksums, and the references to files."""
